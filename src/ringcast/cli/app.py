"""The application that all commands belong to, and the report of errors.

A command is imported when it is called: most need packages that take long to load. The
list of commands needs none of them, so it is here.
"""

import os
import sys
from importlib import import_module
from typing import Annotated

import typer

import ringcast
from ringcast.cli import INTERRUPTED
from ringcast.cli.interrupts import end_java
from ringcast.errors import RingcastError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
                  context_settings={"help_option_names": ["-h", "--help"]},
                  help="Reliable, ordered group messaging: watch it work, measure it, record the "
                       "messages of a group.")

# The module of each command, and what the list says of it.
COMMANDS = {
    "demo": ("ringcast.cli.demo.command", "Run the whole system on real data."),
    "join": ("ringcast.cli.join", "Join a group at the terminal."),
    "members": ("ringcast.cli.members", "Show who is in a group, without joining it."),
    "status": ("ringcast.cli.status", "Show what members on this machine know."),
    "top": ("ringcast.cli.top", "Watch the members of a group on this machine."),
    "monitor": ("ringcast.cli.monitor", "Follow what happens in a group."),
    "doctor": ("ringcast.cli.doctor", "Find what keeps a group from working here."),
    "keygen": ("ringcast.cli.keygen", "Make the secret of a group."),
    "record": ("ringcast.cli.record", "Record the messages of a group in a journal."),
    "journal": ("ringcast.cli.journal", "Show a journal, or remove what is not needed."),
    "publish": ("ringcast.cli.publish", "Send the rows that Spark writes to a group."),
    "audit": ("ringcast.cli.audit", "Prove from traces that a group kept its promise."),
    "simulate": ("ringcast.cli.simulate", "Run groups in a simulated network, and check them."),
    "perf": ("ringcast.cli.perf.command", "Measure throughput and round trips here."),
}


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"ringcast {ringcast.__version__}")
        raise typer.Exit


@app.callback()
def common(version: Annotated[bool, typer.Option(
        "--version", callback=show_version, is_eager=True,
        help="Print the version and exit.")] = False) -> None:
    pass


def load(words: list[str]) -> None:
    """Add the command that the words of a command line name. If they name none, add all
    by name, for the list."""
    called = next((word for word in words if not word.startswith("-")), None)
    if called in COMMANDS:
        import_module(COMMANDS[called][0])
    else:
        for name, (_, summary) in COMMANDS.items():
            app.command(name, help=summary)(lambda: None)


# Where a shell that asks for completions gives the command line.
COMPLETED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")


def words_given() -> list[str]:
    """Return the words of the command line: of this one, or of the one to complete."""
    if "_RINGCAST_COMPLETE" not in os.environ:
        return sys.argv[1:]
    return next((os.environ[name] for name in COMPLETED if name in os.environ), "").split()[1:]


def run() -> None:
    """Run the command line. An error of ringcast becomes one sentence and exit status
    2."""
    load(words_given())
    try:
        app(prog_name="ringcast")
    except RingcastError as error:
        print(f"ringcast: {error}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            end_java()
        raise
