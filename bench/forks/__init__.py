"""Forks and pins: the cost of making and reading a fork, and of pins for a writer."""
