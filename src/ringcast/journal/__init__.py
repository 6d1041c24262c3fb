"""A durable journal of the messages that one member received: its writer, its reader
and its retention. Without Spark."""
