"""`ringcast top`: a live table of the members of a group on this machine."""

import typer

from ringcast.cli.app import app
from ringcast.cli.options import GroupHere


@app.command("top")
def top_command(group: GroupHere) -> None:
    """Show the members of a group, live: their state, what they have not acknowledged,
    what they miss, what they send and get each second; and who waits for whom. Ctrl-C
    ends it. If the output is no terminal, show it once.

    It reads the status files of the members on this machine, so it works on those that
    hang and on those that were killed. Of members elsewhere it shows what those here
    say. Exit status 1 if nobody of the group has a status file here.
    """
    from ringcast.cli.live import show

    raise typer.Exit(show(group))
