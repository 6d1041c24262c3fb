"""`ringcast simulate`: its options, runs of seeds, campaigns on Spark."""
