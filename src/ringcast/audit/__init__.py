"""The audit: prove or refute the promises of ringcast from the traces of a group."""
