"""Seeded simulations of the whole object log, and the planted bugs that prove them."""
