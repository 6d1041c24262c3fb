"""`ringcast perf`: messages a second of a group on this machine, beside its peers."""
