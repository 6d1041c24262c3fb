"""The TCP transport: one link for each pair of members."""
