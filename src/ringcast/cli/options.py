"""Options, the readers of their values, and JSON, for several commands.

All that is imported here is imported for the help of a command, too.
"""

import json
import shlex
from pathlib import Path, PosixPath
from typing import Annotated, Any

import msgspec
import typer

from ringcast.config import NETWORKED, Config, check_stack, configure, suggestion
from ringcast.errors import ConfigError
from ringcast.logs import printable as printable
from ringcast.paths import local_path, typed as typed


class TypedPath(PosixPath):
    """A path that remembers how it was typed."""

    typed: str


def path(text: str) -> Path:
    """Return the local path that an argument names: the `parser` of every path
    argument."""
    try:
        named = TypedPath(local_path(text))
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    named.typed = text
    return named


def names(text: str) -> list[str]:
    """Return the names in a list with commas between them."""
    return [name for each in text.split(",") if (name := each.strip())]


def groups_here(begun: str) -> list[str]:
    """Return the groups that have members on this machine, for a shell that completes
    a word. Of names that a shell would read otherwise there are none."""
    from ringcast.statusfile import snapshots

    return sorted({each.group for each in snapshots()
                   if each.group.startswith(begun) and shlex.quote(each.group) == each.group})


def options_of_groups(begun: str) -> list[str]:
    """Return the options of a group, for a shell that completes a word."""
    return [f"{name}=" for name in Config.__struct_fields__ if name.startswith(begun)]


def networked_stacks(begun: str) -> list[str]:
    """Return stacks that connect processes, for a shell that completes a word."""
    return [name for name in NETWORKED if name.startswith(begun)]


GroupHere = Annotated[str, typer.Argument(help="The group.", autocompletion=groups_here)]


Settings = Annotated[list[str] | None, typer.Option(
    "--set", metavar="NAME=VALUE", autocompletion=options_of_groups,
    help="An option of the group, e.g. port=7701 or xmit_interval=20; repeat for more. "
         "The page Reference of the documentation has all options with their units, defaults "
         "and ranges.")]


def check_networked(stack: str) -> str:
    """Return the name of a stack that connects processes. Raises ConfigError for
    another one."""
    check_stack(stack, NETWORKED)
    return stack


StackName = Annotated[str, typer.Option("--stack", callback=check_networked,
                                        autocompletion=networked_stacks,
                                        help=f"The stack of the group: {', '.join(NETWORKED)}.")]


SecretFile = Annotated[Path | None, typer.Option(
    "--secret-file", metavar="FILE", parser=path,
    help="The group's secret, a file from `ringcast keygen`: all members have the same.")]


TrustFolder = Annotated[Path | None, typer.Option(
    "--trust", metavar="FOLDER", parser=path,
    help="The public keys of the members, and our own private key: a folder from `ringcast trust "
         "new`.")]


def name_for(role: str, name: str | None, trust: Path | None) -> str:
    """Return the name of a member that a command opens: the one that was given, else
    that of its role; with trusted keys, one that our key may have."""
    from ringcast.trust import Folder

    if name is not None:
        return name
    return role if trust is None else Folder(trust).name(role)


Discovery = Annotated[str, typer.Option(
    "--discovery", metavar="HOW",
    help="Where to look for members: multicast, hosts:HOST:PORT,HOST..., dns:NAME or "
         "folder:PATH.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]

JsonFile = Annotated[str | None, typer.Option(
    "--json", metavar="FILE",
    help="Write all figures as one JSON document; - is standard output.")]


def json_line(value: Any) -> bytes:
    """Return a value as one line of JSON, in UTF-8."""
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode(errors="replace")


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, at once."""
    print(json_line(value).decode(), flush=True)


def check_loss(loss: float, stack: str, options: dict[str, Any]) -> None:
    """Raise ConfigError if datagrams would be discarded that nobody sends again."""
    if loss and configure(options, stack).xmit_interval <= 0:
        raise ConfigError(f"--loss discards datagrams, and {stack} without retransmission would "
                          "not send them again; leave it out, or pass an xmit_interval of more "
                          "than 0")


Master = Annotated[str | None, typer.Option(
    "--master", metavar="URL", help="Spark's master, e.g. spark://host:7077.",
    show_default="as Spark is configured, else all cores of this machine")]
Conf = Annotated[list[str] | None, typer.Option(
    "--conf", metavar="KEY=VALUE", help="A setting of Spark, as for spark-submit, e.g. "
                                        "spark.executor.memory=4g; repeat for more.")]


def pairs(given: list[str] | None, flag: str) -> dict[str, str]:
    """Return the values of a flag of the form NAME=VALUE."""
    chosen: dict[str, str] = {}
    for option in given or ():
        name, mark, value = option.partition("=")
        if not mark or not name:
            raise ConfigError(f"{flag} {option} has no value; write {flag} NAME=VALUE")
        chosen[name] = value
    return chosen


def settings(options: list[str] | None) -> dict[str, Any]:
    """Return the values of `--set` NAME=VALUE as keyword arguments, which are options.
    A Channel checks the values."""
    chosen = pairs(options, "--set")
    for name in chosen:
        if name not in Config.__struct_fields__:
            raise ConfigError(f"there is no option {name!r}; {suggestion(name)}")
    return chosen

