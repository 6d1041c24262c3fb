"""A durable journal of what one member received: who writes it, who reads it, how long
it is kept. No Spark."""
