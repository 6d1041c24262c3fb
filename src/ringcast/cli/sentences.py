"""Sentences that commands print. In a terminal they are folded between words; in a pipe
each is one line.

Tables are in screen.py, which needs rich. This needs nothing that takes long to load.
"""

import shutil
import sys
import textwrap

NARROWEST = 20          # columns that are left for words beside an indent


def folded(text: str, indent: int = 0) -> str:
    """Return a line as standard output shows it. In a terminal that is too narrow for
    it, the rest follows in lines that begin with `indent` spaces."""
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns
    spaces = " " * min(indent, max(0, width - NARROWEST))
    return textwrap.fill(text, width, subsequent_indent=spaces, break_on_hyphens=False)
