"""`ringcast audit`: its options, and what it shows."""
