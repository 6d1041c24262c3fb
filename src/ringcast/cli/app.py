"""The application that all commands belong to, and the report of errors.

A command is imported when it is called: most need packages that take long to load. The
list of commands needs none of them, so it is here.
"""

import errno
import os
import signal
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import ringcast
from ringcast.cli import INTERRUPTED
from ringcast.cli.interrupts import end_java, has_ended_java
from ringcast.cli.spark_errors import said_of_spark
from ringcast.errors import RingcastError

NAME = "ringcast"
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
                  context_settings=SETTINGS,
                  help="Reliable, ordered group messaging: watch it work, measure it, record the "
                       "messages of a group.")

# The module of each command, and what the list says of it.
COMMANDS = {
    "demo": ("ringcast.cli.demo.command", "Run the whole system on real data."),
    "join": ("ringcast.cli.join.command", "Join a group at the terminal."),
    "members": ("ringcast.cli.members", "Show who is in a group, without joining it."),
    "status": ("ringcast.cli.status", "Show what members on this machine know."),
    "top": ("ringcast.cli.top", "Watch the members of a group on this machine."),
    "monitor": ("ringcast.cli.monitor", "Follow what happens in a group."),
    "doctor": ("ringcast.cli.doctor", "Find what keeps a group from working here."),
    "keygen": ("ringcast.cli.keygen", "Make the secret of a group."),
    "trust": ("ringcast.cli.trust", "Make, add and remove the keys of members."),
    "record": ("ringcast.cli.record", "Record the messages of a group in a journal."),
    "journal": ("ringcast.cli.journal.command", "Show a journal, or remove what is not needed."),
    "publish": ("ringcast.cli.publish", "Send the rows that Spark writes to a group."),
    "audit": ("ringcast.cli.audit.command", "Prove from traces that a group kept its promise."),
    "simulate": ("ringcast.cli.simulate.command",
                 "Run groups in a simulated network, and check them."),
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


def is_completing() -> bool:
    """Return whether a shell asks for completions."""
    return "_RINGCAST_COMPLETE" in os.environ


def words_given() -> list[str]:
    """Return the words of the command line: of this one, or of the one to complete."""
    if not is_completing():
        return sys.argv[1:]
    return next((os.environ[name] for name in COMPLETED if name in os.environ), "").split()[1:]


def call(words: list[str]) -> None:
    """Call the command that the first words name. Each of them would do it by itself,
    but to read options that were not given takes as long as all else of a help."""
    command, name = typer.main.get_command(app), NAME
    while isinstance(command, TyperGroup) and words and words[0] in command.commands:
        command, name = command.commands[words[0]], f"{name} {words[0]}"
        words = words[1:]
    try:
        command(words, prog_name=name, **SETTINGS)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):    # of which Typer makes the status 1
            raise end.__context__ from None
        raise


def run() -> None:
    """Run the command line, and write all that it prints. An error of ringcast or of
    Spark becomes one sentence and exit status 2, and so does a full disk. If nobody
    reads the output, end as a program that this signal ends."""
    words = words_given()
    load(words)
    try:
        try:
            app(prog_name=NAME) if is_completing() else call(words)
        finally:
            sys.stdout.flush()          # what this raises, Python would only show at its end
    except SystemExit as end:
        if end.code == INTERRUPTED:
            end_java()
        raise
    except Exception as error:
        if has_ended_java():
            sys.exit(INTERRUPTED)
        said = sentence(error)
        if said is None and not isinstance(error, BrokenPipeError):
            raise
        discard_output()
        if said is None:
            sys.exit(128 + signal.SIGPIPE)
        print(f"ringcast: {said}", file=sys.stderr)
        sys.exit(2)


def sentence(error: Exception) -> str | None:
    """Return what to say of an error; None if it is not for people."""
    if isinstance(error, RingcastError):
        return str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return ("there is no room left on the device of a file, or of standard output; make room "
                "and run it again")
    return said_of_spark(error)


def discard_output() -> None:
    """Write to nowhere what is still to be written to standard output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
