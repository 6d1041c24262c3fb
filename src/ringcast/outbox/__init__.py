"""The outbox, a folder that Spark writes into, and the publisher that multicasts what
is in it."""

KEEP_PARTS = 86_400.0       # seconds until a part that no batch names is removed
