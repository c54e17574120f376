"""Commands that keep a log: what holds its records, and what gives back their space."""
