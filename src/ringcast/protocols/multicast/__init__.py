"""Messages to everybody: MCAST, NAKACK2 and STABLE, and what they share."""
