"""Stratalog on Spark: reading and writing logs, and the jobs that keep a herd."""
