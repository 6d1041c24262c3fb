"""`ringcast keygen`: the secret of a group, in a file."""

from pathlib import Path
from typing import Annotated

import typer

from ringcast.cli.app import app
from ringcast.cli.options import path, typed


@app.command("keygen")
def keygen_command(
    file: Annotated[Path, typer.Argument(parser=path, help="The file to make; not one that is "
                                                           "there.")],
) -> None:
    """Make the secret of a group: a new file with 32 random bytes that only its owner
    can read.

    Bring it to all members by a way that nobody else reads, and give its path as
    --secret-file, or as the argument secret of a Channel.
    """
    from ringcast.secret import write_secret

    write_secret(file)
    print(f"{typed(file)} holds a new secret")
