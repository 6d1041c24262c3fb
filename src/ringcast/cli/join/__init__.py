"""`ringcast join`: its options, and the member at the terminal."""
