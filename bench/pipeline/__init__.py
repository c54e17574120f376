"""The pipeline on Spark: reading, writing and merging against Spark, scrubbing against hashing."""
