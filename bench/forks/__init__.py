"""Forks and pins: what a fork takes to make and to read, and what pins take from a writer."""
