"""The audit: prove or refute, from the traces of a group, what ringcast promises."""
