"""Draw, for each seed, also the settings that nobody has given: `simulate --mixed`.

Without it, all seeds run on one stack, and nothing is sealed, nobody observes or starts
late, and there are no large and no OOB messages, unless that is given. With it, each
seed draws such settings as well, and how often some of the faults happen. Such
combinations have shown mistakes that no list of settings had.

What is drawn depends on nothing but the seed and what is given.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from ringcast.config import NETWORKED
from ringcast.errors import ConfigError
from ringcast.sim.runs.settings import Settings

# Each setting, the probability that it is set, and its values. What the settings allow
# depends on the stack, so it comes first.
CHOICES: dict[str, tuple[float, Sequence[Any]]] = {
    "stack": (1, NETWORKED),
    "members": (0.6, [2, 3, 3, 4, 5, 6, 8]),
    "partitions": (0.5, [1, 2, 3, 5]),
    "crashes": (0.5, [0, 1, 2, 4]),
    "exclusions": (0.4, [1, 2, 3]),
    "leaves": (0.4, [1, 2, 3]),
    "durable": (0.5, [1, 1, 2, 3]),
    "observers": (0.3, [1, 2]),
    "late": (0.3, [1, 2]),
    "pauses": (0.3, [1, 2, 3]),
    "slow": (0.3, [1, 3]),
    "jumps": (0.2, [1, 2]),
    "large": (0.3, [2, 10]),
    "oob": (0.2, [5, 30, 100]),
    "between": (0.5, [30]),
    "unicast": (0.3, [0, 20, 100]),
    "loss": (0.2, [0, 0.1, 0.25]),
    "threads": (0.2, [0, 2]),
    "mtu": (0.2, [0, 1500]),
    "socket_buffer": (0.3, [70_000, 200_000, 400_000]),
    "messages": (0.4, [20, 60, 150, 300]),
    "size": (0.2, [1, 200, 2000]),
    "sealed": (0.2, [True]),
    "trusted": (0.15, [True]),
    "lasting": (0.05, [True]),
}
# The same for options of the stack. They are text, as in a command.
OPTIONS: dict[str, tuple[float, Sequence[str]]] = {
    "partition": (0.15, ["primary"]),
    "capacity": (0.25, ["16", "64", "4096"]),
    "max_bytes": (0.25, ["50000", "4000000"]),
    "absence": (0.15, ["2", "20"]),
}


class Mixed(Settings, frozen=True, kw_only=True):
    """Settings of which each seed draws some more: those that are `open`, and those
    OPTIONS that are not in `options`."""

    open: tuple[str, ...] = tuple(CHOICES)

    def of_seed(self, seed: int) -> Settings:
        """Return the settings of a seed."""
        settings = Settings(**{name: getattr(self, name) for name in Settings.__struct_fields__})
        for name in self.open:
            chance, values = CHOICES[name]
            settings = choose(Random(f"{seed} mixed {name}"), chance, settings, [
                msgspec.structs.replace(settings, **{name: value}) for value in values])
        for name in sorted(OPTIONS.keys() - self.options.keys()):
            chance, values = OPTIONS[name]
            settings = choose(Random(f"{seed} mixed {name}"), chance, settings, [
                msgspec.structs.replace(settings, options=settings.options | {name: value})
                for value in values])
        return settings

    def check(self) -> None:
        """Raise ConfigError for what cannot be simulated."""
        if self.steady is not None:
            raise ConfigError("under a steady load nothing is drawn; leave out steady or mixed")
        self.of_seed(0).check()         # nothing is drawn that is refused


def choose(rng: Random, chance: float, settings: Settings,
           others: Sequence[Settings]) -> Settings:
    """Return one of the others with the probability `chance`, if one is allowed; else
    the settings as they are."""
    if rng.random() >= chance:
        return settings
    return rng.choice([each for each in others if is_allowed(each)] or [settings])


def is_allowed(settings: Settings) -> bool:
    """Return whether these settings can be simulated."""
    try:
        settings.check()
    except ConfigError:
        return False
    return True
