"""The verbs of transcripts."""
