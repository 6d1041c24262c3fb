"""What all commands share: the application they hang on, and how errors leave it."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import ringcast
from ringcast.config import configure
from ringcast.errors import ConfigError, RingcastError
from ringcast.paths import local_path
from ringcast.stacks import NETWORKED

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  rich_markup_mode=None,
                  help="Reliable, ordered group messaging: watch it work, measure it, record what "
                       "a group says.")
console = Console(stderr=True)           # progress and remarks; results go to standard output



def path(text: str) -> Path:
    """Return the local path that an argument names: the `parser` of every argument that
    is one."""
    try:
        return local_path(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


Settings = Annotated[list[str] | None, typer.Option(
    "--set", metavar="NAME=VALUE",
    help="A property of the stack, e.g. port=7701 or xmit_interval=20; repeat for more. "
         "Each has its unit, default and range in ringcast.config.Config.")]


def between_processes(stack: str) -> str:
    """The name of a stack on which processes meet; ConfigError for another."""
    if stack not in NETWORKED:
        raise ConfigError(f"--stack {stack!r} is not one of {', '.join(NETWORKED)}, on which processes meet")
    return stack


StackName = Annotated[str, typer.Option("--stack", callback=between_processes,
                                        help=f"What the group runs on: {', '.join(NETWORKED)}.")]


def check_loss(loss: float, stack: str, options: dict[str, Any]) -> None:
    """ConfigError when datagrams are to be discarded where nobody would send them
    again."""
    if loss and configure(options, stack).xmit_interval <= 0:
        raise ConfigError(f"--loss discards what the network brought, and {stack} without retransmission asks for nothing again; leave "
                          "it out, or pass an xmit_interval of more than 0")


Master = Annotated[str | None, typer.Option(
    "--master", metavar="URL", help="Where Spark runs, e.g. spark://host:7077.",
    show_default="what Spark was told, else all cores of this machine")]
Conf = Annotated[list[str] | None, typer.Option(
    "--conf", metavar="KEY=VALUE", help="A setting of Spark as for spark-submit, e.g. "
                                        "spark.executor.memory=4g; repeat for more.")]


def settings(options: list[str] | None, flag: str = "--set") -> dict[str, Any]:
    """Return the properties that `--set` names, as keyword arguments of a Channel,
    which checks them; or what another flag of this form names."""
    chosen: dict[str, Any] = {}
    for option in options or ():
        name, mark, value = option.partition("=")
        if not mark or not name:
            raise ConfigError(f"{flag} {option} has no value; write {flag} NAME=VALUE")
        chosen[name] = value
    return chosen


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"ringcast {ringcast.__version__}")
        raise typer.Exit


@app.callback()
def common(version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True,
                                                  help="Print the version and exit.")] = False) -> None:
    pass


def run() -> None:
    """Run the command line; errors that ringcast explains become one sentence and exit
    status 2."""
    try:
        app()
    except RingcastError as error:
        print(f"ringcast: {error}", file=sys.stderr)
        sys.exit(2)
