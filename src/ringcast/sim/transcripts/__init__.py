"""Transcripts: the rules of protocol texts as plays that run."""
