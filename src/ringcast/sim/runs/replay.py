"""The command that runs a seed again; it is printed with every failure."""

import shlex

from ringcast.sim.runs.settings import Settings

DEFAULTS = Settings()


def replay(seed: int, fixed: Settings, actions: int | None = None) -> str:
    """Return a line for the shell that runs this seed with these settings. `actions`
    limits it to a prefix of the plan."""
    fixed = fixed.of_seed(seed)
    words = ["ringcast", "simulate", "--seed", str(seed)]
    for name in Settings.__struct_fields__:
        value = getattr(fixed, name)
        if name != "options" and value != getattr(DEFAULTS, name):
            option = "--" + name.replace("_", "-")
            words += [option] if value is True else [option, str(value)]
    for name, value in fixed.options.items():
        words += ["--set", f"{name}={value}"]
    if actions is not None:
        words += ["--actions", str(actions)]
    return shlex.join(words)
