"""`ringcast simulate`: run whole groups in a simulated network, one for each seed, on
all cores. A failure is printed with the command that replays it."""

import inspect
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import msgspec
import typer

from ringcast.cli.app import app
from ringcast.cli.options import AsJson, Conf, Master, Settings as Options, pairs, path, settings
from ringcast.errors import ConfigError
from ringcast.sim.runs.mixed import CHOICES, Mixed
from ringcast.sim.runs.replay import DEFAULTS
from ringcast.sim.runs.settings import Settings, pick

if TYPE_CHECKING:
    from ringcast.cli.simulate.audits import Audits

SEEDS = 1000
CAMPAIGN_SEEDS = 3                      # of each combination
LIMIT = 300.0                           # real seconds of a run of a campaign
AXES = {"loss": float, "members": int}  # settings that may have several values in a campaign


class Several(tuple[Any, ...]):
    """The values of one option, given as a list with commas."""


def several(kind: Callable[[str], Any]) -> Callable[[str], Several]:
    """Return a parser of lists of such values."""
    def parse(text: str) -> Several:
        try:
            return Several(kind(value) for value in text.split(","))
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number, nor several with commas between "
                                     "them.") from None

    return parse


def only(values: Several | None, name: str) -> Any:
    """Return the one value of an option. Raise ConfigError for several values, which
    only a campaign takes."""
    if values is not None and len(values) > 1:
        raise ConfigError(f"--{name} has several values, which is for a campaign; add --spark, "
                          "or give one")
    return values[0] if values else None


def mix(fixed: Settings, context: typer.Context) -> Mixed:
    """Return settings of which each seed draws also those that were not given."""
    sources = {name: context.get_parameter_source(name) for name in CHOICES}
    return Mixed(**msgspec.structs.asdict(fixed), open=tuple(
        name for name, source in sources.items() if source is None or source.name == "DEFAULT"))


def audits_of(traces: Path | None) -> "AbstractContextManager[Audits]":
    """Start Spark, which audits the runs until the block ends."""
    from ringcast.cli.simulate.audits import auditing

    return auditing(traces)


def setting(name: str, hint: Any) -> inspect.Parameter:
    """Return the option of the command for a field of Settings."""
    kind, text = get_args(hint)
    details: dict[str, Any] = {}
    if name in AXES:
        kind, number = Several | None, AXES[name]
        details = {"parser": several(number), "metavar": f"<{number.__name__}>"}
    option = typer.Option(help=text.meaning, show_default=text.default, **details)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY,
                             default=getattr(DEFAULTS, name), annotation=Annotated[kind, option])


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of Settings, behind --trace."""
    hints = get_type_hints(Settings, include_extras=True)
    options = [setting(name, hint) for name, hint in hints.items() if name != "options"]
    own = list(inspect.signature(command).parameters.values())[:-1]     # without **given
    place = [each.name for each in own].index("trace") + 1
    signature = inspect.Signature([*own[:place], *options, *own[place:]])
    command.__signature__ = signature           # type: ignore[attr-defined]
    command.__annotations__ |= {each.name: each.annotation for each in options}
    return command


@app.command("simulate")
@with_settings
def simulate_command(
    context: typer.Context,
    *,
    seeds: Annotated[int | None, typer.Option(
        help="How many runs; with --spark, of each combination.",
        show_default=f"{SEEDS}; with --spark {CAMPAIGN_SEEDS}")] = None,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option(
        help="Run this seed alone and show what happens in it.")] = None,
    mixed: Annotated[bool, typer.Option(
        "--mixed", help="Each seed draws also some of the options that are not given: the stack, "
                        "members, faults, load, observers, keys.")] = False,
    actions: Annotated[int | None, typer.Option(
        help="With --seed: perform only the first so many actions of its plan.")] = None,
    audit: Annotated[bool, typer.Option(
        "--audit", help="Audit each run as ringcast audit does, on Spark. What the audit finds "
                        "fails the run.")] = False,
    trace: Annotated[Path | None, typer.Option(
        parser=path, metavar="DIR",
        help="Write the events of the run to this directory, for ringcast audit; of many runs, "
             "those of each seed to a directory of its own in this one.")] = None,
    workers: Annotated[int | None, typer.Option(
        help="Processes that run; with --audit, as many audits run at a time.",
        show_default="one for each core")] = None,
    spark: Annotated[bool, typer.Option(
        "--spark", help="A campaign on Spark: measure every combination of --loss, --members, "
                        "--set capacity= and --set xmit_interval=, each with several values, as "
                        "in --loss 0,0.01.")] = False,
    results: Annotated[Path | None, typer.Option(
        parser=path, help="With --spark: keep a row for each run in this folder, as Parquet. A run "
                          "that has a row already is not repeated.")] = None,
    report: Annotated[Path | None, typer.Option(
        parser=path, help="With --spark: write the answer to this HTML page, with "
                          "heat-maps.")] = None,
    limit: Annotated[float | None, typer.Option(
        help="With --spark: real seconds that a run may take. A longer one is ended and reported.",
        show_default=f"{LIMIT:g}")] = None,
    master: Master = None,
    conf: Conf = None,
    options: Options = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Run groups in a simulated network, and check after every event that no promise is
    broken.

    Each seed draws a group, its windows and intervals, its load, and its faults:
    members die at single steps of an agreement, and groups come apart and become one
    again. What you give here is not drawn, but the same for all seeds. The same seed
    with the same options is the same run, bit for bit. After the faults the network
    heals, and all that is owed must happen within a stated time. Exit status 1 if a run
    failed. Each failure is listed with the shortest prefix of its plan that still
    fails, and with the command that replays it.

    With --mixed, each seed draws more: also the stack, members that observe or start
    late, keys and large messages, and often only a few kinds of faults. Such
    combinations find mistakes that one list of options does not find.

    With --spark, runs with a steady load are spread over the cores of this machine or a
    cluster, for every combination of loss, group size, capacity and xmit_interval. The
    answer says which capacity and interval to take for each loss and group size.

    With --json, print one object a line: a "run" for --seed, else each "failure", with
    --spark each recommended "setting", and at the end the "sum".
    """
    axes = {name: given.pop(name) for name in AXES}
    fixed = Settings(**given)
    seeds = int(pick(seeds, CAMPAIGN_SEEDS if spark else SEEDS))
    if seeds < 1:
        raise ConfigError(f"--seeds is {seeds}; at least one is needed")
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers is {workers}; at least one is needed")
    if spark:
        if seed is not None or actions is not None:
            raise ConfigError("--seed and --actions are for one run, and --spark is for many; "
                              "leave one of them out")
        if mixed or audit or trace is not None:
            raise ConfigError("--mixed, --audit and --trace are for runs with faults, and --spark "
                              "measures a steady load; leave one of them out")
        from ringcast.cli.simulate import campaign

        fixed, axes = campaign.split_axes(fixed, settings(options), **axes)
        if workers is not None and master is not None:
            raise ConfigError("--workers is for this machine, and --master names another place to "
                              "run; leave one of them out")
        master = f"local[{workers}]" if workers else master
        raise typer.Exit(campaign.run(
            fixed, axes, range(first, first + seeds), master=master, conf=pairs(conf, "--conf"),
            results=results, report=report, limit=pick(limit, LIMIT), as_json=as_json))
    for name, value in {"results": results, "report": report, "limit": limit, "master": master,
                        "conf": conf}.items():
        if value is not None:
            raise ConfigError(f"--{name} is for a campaign; add --spark")
    fixed = msgspec.structs.replace(fixed, options=settings(options),
                                    **{name: only(values, name) for name, values in axes.items()})
    if mixed:
        fixed = mix(fixed, context)
    fixed.check()
    from ringcast.cli.simulate import seeds as seed_runs

    if actions is not None and actions < 0:
        raise ConfigError(f"--actions is {actions}; it is a number of actions, 0 or more")
    if actions is not None and seed is None:
        raise ConfigError("--actions is for one run; add --seed N")
    workers = workers or len(os.sched_getaffinity(0))
    with audits_of(trace) if audit else nullcontext() as audits:
        if seed is not None:
            raise typer.Exit(seed_runs.show_one(seed, fixed, actions, trace, as_json, audits))
        raise typer.Exit(seed_runs.run_all(range(first, first + seeds), fixed, workers, as_json,
                                           audits.traces if audits else trace, audits))
