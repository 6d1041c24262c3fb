"""`ringcast perf`: the throughput of a group on this machine, beside plain Python."""
