"""Transcripts: what a protocol text says, as a play that runs."""
