"""The outbox, a folder that Spark writes into, and the publisher that multicasts what
is in it."""
