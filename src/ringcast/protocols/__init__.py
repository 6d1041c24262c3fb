"""One file per protocol, named by its term."""
