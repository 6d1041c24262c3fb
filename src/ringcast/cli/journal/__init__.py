"""`ringcast journal`: its options, and what it shows."""
