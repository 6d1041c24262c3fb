"""What all commands share: the application they hang on, and how errors leave it."""

import sys
from typing import Annotated

import typer
from rich.console import Console

import ringcast
from ringcast.errors import RingcastError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
                  help="Reliable, ordered group messaging: watch it work, measure it, record what a group says.")
console = Console(stderr=True)           # progress and remarks; results go to standard output


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"ringcast {ringcast.__version__}")
        raise typer.Exit


@app.callback()
def common(version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True,
                                                  help="Print the version and exit.")] = False) -> None:
    pass


def run() -> None:
    """Run the command line; errors that ringcast explains become one sentence and exit status 2."""
    from ringcast.cli import perf  # noqa: F401  (importing a command's module adds it to the app)

    try:
        app()
    except RingcastError as error:
        print(f"ringcast: {error}", file=sys.stderr)
        sys.exit(2)
