"""`ringcast trust`: the folder of keys with which members know each other."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ringcast.cli.app import app
from ringcast.cli.options import AsJson, path, print_json, printable
from ringcast.errors import ConfigError

trust_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None,
                        help="Make, add, list and remove the keys of the members of a group.")
app.add_typer(trust_app, name="trust")

Where = Annotated[Path, typer.Argument(metavar="FOLDER", parser=path,
                                       help="The folder that --trust and trust= name.")]
Name = Annotated[str, typer.Argument(help="The name of the key: its member has this name, or one "
                                          "that begins with it and a /.")]


@trust_app.command("new")
def new(folder: Where, name: Name) -> None:
    """Make the keys of this member in a folder. It prints the public key: add that to
    the folders of all other members.

    The private key stays in this folder. Nobody else needs it, and only its owner can
    read it.
    """
    from ringcast.trust import new_key

    print(f"{new_key(folder, name)} {name}")


@trust_app.command("add")
def add(folder: Where, name: Name, key: Annotated[str, typer.Argument(
        help="The public key: the line that `ringcast trust new` printed, in quotes, or its "
             "file.")]) -> None:
    """Trust the public key of another member. Members that run see it within a
    second."""
    from ringcast.trust import add_key, fingerprint, parse_public

    if not key.startswith("ssh-"):
        try:
            key = path(key).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{printable(key)} is neither a public key nor a file with one: "
                              f"{error}") from None
    add_key(folder, name, key)
    print(f"{printable(name)} is trusted: {fingerprint(parse_public(key.encode(), 'the text'))}")


@trust_app.command("list")
def show(folder: Where, as_json: AsJson = False) -> None:
    """Show whose keys are trusted, and which is our own. With each key stands its short
    form, which people compare.

    What is wrong with a file is said on standard error, and the exit status is then 1.
    A file that cannot be read takes no trust away: to do that, remove it.

    With --json, print one object a line: of each key the "name", the "fingerprint" and
    whether it is "own".
    """
    from ringcast.cli.screen import page, show_table
    from ringcast.trust import Folder, fingerprint

    found = Folder(folder, may_lack=True)
    keys = sorted((name, key) for key, names in found.names.items() for name in names)
    if as_json:
        for name, key in keys:
            print_json({"key": {"name": name, "fingerprint": fingerprint(key),
                                "own": key == found.key}})
    else:
        show_table(page(), ("name", "key", ""), [
            (printable(name), fingerprint(key), "our own" if key == found.key else "")
            for name, key in keys], words=(0, 1, 2))
    for fault in found.faults:
        print(f"ringcast: {printable(fault)}; " + (
            "members that have read its key trust it until the file is removed"
            if fault in found.unread.values() else "it is not trusted"), file=sys.stderr)
    if found.faults:
        raise typer.Exit(1)


@trust_app.command("remove")
def remove(folder: Where, name: Name) -> None:
    """Trust the key of a member no more. Members that run see it within a second: that
    member is silent for them, is excluded, and does not come back."""
    from ringcast.trust import remove_key

    remove_key(folder, name)
    print(f"{printable(name)} is trusted no more")
