"""A folder that Spark writes into, and the member that multicasts from it."""
