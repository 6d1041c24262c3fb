"""Checks of the arguments of public calls, so that a wrong one raises at once (decision
24).

Each function takes the argument's name and the value that the caller gave. It returns
the value in the form that the code uses, or raises one sentence that says what to pass
instead: TypeError for a value of a wrong type, ConfigError for one outside its range.
"""

import threading
from collections.abc import Iterable, Sequence
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, TypeVar

from ringcast.address import LASTING, TURNS, Address, Succession
from ringcast.config import MAX_NAME
from ringcast.digest import Digest
from ringcast.errors import ConfigError
from ringcast.flags import Flag
from ringcast.protocols.seqnos import MODULUS
from ringcast.view import View

FLAGS = int(Flag.OOB | Flag.DONT_LOOPBACK | Flag.NO_RELIABILITY)
LONGEST = int(threading.TIMEOUT_MAX)        # seconds that Python can wait

Item = TypeVar("Item")


def text(argument: str, value: Any) -> str:
    """Return a group's or a member's name: a str that is not empty."""
    if not isinstance(value, str):
        raise TypeError(f"{argument} is a str, not {kind(value)}")
    if not value:
        raise ConfigError(f"{argument} is empty; give it at least one character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{argument}={value!r} has a character that UTF-8 cannot encode; "
                          "leave it out") from None
    return value


def member_name(argument: str, value: Any) -> str:
    """Return a member's name, which has at most MAX_NAME bytes of UTF-8."""
    value = text(argument, value)
    size = len(value.encode())
    if size > MAX_NAME:
        raise ConfigError(f"{argument}={value!r} has {size} bytes in UTF-8; "
                          f"a member's name has at most {MAX_NAME}")
    return value


def callback(argument: str, value: Any, may_yield: bool = False) -> Any:
    """Return a function, or None. It may not be a coroutine function, and it may be a
    generator function only if what it returns is used."""
    if value is None:
        return None
    if not callable(value):
        raise TypeError(f"{argument} is a function, or None, not {kind(value)}")
    codes = (value, type(value).__call__)
    if any(iscoroutinefunction(code) or isasyncgenfunction(code) for code in codes):
        raise TypeError(f"{argument} is called on a thread of the channel, so it cannot be async; "
                        "pass a function that calls asyncio.run_coroutine_threadsafe")
    if not may_yield and any(map(isgeneratorfunction, codes)):
        raise TypeError(f"{argument} yields, and so its body would never run; pass a function "
                        "without yield")
    return value


def boolean(argument: str, value: Any) -> bool:
    """Return True or False. Other values are refused: "no" would count as true."""
    if not isinstance(value, bool):
        raise TypeError(f"{argument} is True or False, not {kind(value)}")
    return value


def resume(value: Any, durable: bool) -> Digest | None:
    """Return a Digest of seqnos by Address, or None. Only a durable member may have
    one."""
    if value is None:
        return None
    if not isinstance(value, Digest):
        raise TypeError(f"resume is a ringcast.Digest, not {kind(value)}")
    for sender, seqno in value.items():
        if not isinstance(sender, Address) or not whole(seqno):
            raise TypeError("resume maps each sender's Address to a seqno, "
                            f"not {sender!r} to {seqno!r}")
        if not 0 <= seqno < MODULUS:
            raise ConfigError(f"resume has seqno {seqno} of {sender}; a seqno is in 0 .. 2**64-1")
    if not durable:
        raise ConfigError("only for a durable member is anything kept; pass durable=True, or leave "
                          "out resume")
    return value


def succession(value: Any) -> Succession | None:
    """Return a Succession, or None."""
    if value is None:
        return None
    if not isinstance(value, Succession):
        raise TypeError(f"succession is a ringcast.Succession, not {kind(value)}")
    if not all(map(whole, (value.origin, value.seqno))):
        raise TypeError(f"{value} has a number that is not an int")
    if not (LASTING <= value.origin < MODULUS and not value.origin & TURNS
            and 0 <= value.seqno < MODULUS):
        raise ConfigError(f"{value} is out of range: take the origin from Succession.begin(); a "
                          "seqno is in 0 .. 2**64-1")
    return value


def incarnation(argument: str, value: Any) -> int:
    """Return the incarnation of an Address, or of the number that it is."""
    if isinstance(value, Address):
        return value.incarnation
    if not whole(value):
        raise TypeError(f"{argument} is an Address or the number of an incarnation, "
                        f"not {kind(value)}")
    if not 0 < value < MODULUS:
        raise ConfigError(f"{argument}={value} is no incarnation; one is in 1 .. 2**64-1")
    return value


def slowness(value: Any, deliver: bool, durable: bool) -> bool:
    """Return whether a member is an observer."""
    if not isinstance(value, str):
        raise TypeError(f'slow is "block" or "observe", not {kind(value)}')
    if value not in ("block", "observe"):
        raise ConfigError(f'slow is "block" or "observe", not {value!r}')
    if value == "observe" and not deliver:
        raise ConfigError("a member that takes no messages holds nobody up; leave out slow, or "
                          "deliver=False")
    if value == "observe" and durable:
        raise ConfigError("for a durable member the others wait, and for an observer nobody does; "
                          "leave out slow, or durable")
    return bool(value == "observe")


def durability(value: Any, deliver: bool) -> bool:
    """Return whether a member is durable. It must `deliver`."""
    if boolean("durable", value) and not deliver:
        raise ConfigError("a durable member is one that messages are kept for; leave out "
                          "deliver=False, or durable")
    return bool(value)


def instances(argument: str, value: Any, kinds: type[Item]) -> tuple[Item, ...]:
    """Return a sequence of objects of one class."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise TypeError(f"{argument} is a list of {kinds.__name__} objects, not {kind(value)}")
    for item in value:
        if not isinstance(item, kinds):
            raise TypeError(f"{argument} is a list of {kinds.__name__} objects, "
                            f"and {item!r} is not one")
    return tuple(value)


def timeout(value: Any) -> float | None:
    """Return a number of seconds to wait, or None to wait for ever."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("timeout is a number of seconds, or None to wait for ever, "
                        f"not {kind(value)}")
    if not 0 <= value <= LONGEST:
        raise ConfigError(f"timeout={value} is not in 0 .. {LONGEST} seconds; "
                          "pass None to wait for ever")
    return value


def view(argument: str, value: Any) -> View | None:
    """Return a View, or None."""
    if value is not None and not isinstance(value, View):
        raise TypeError(f"{argument} is a View, for example the channel's `view`, or None, "
                        f"not {kind(value)}")
    return value


def flags(value: Any) -> int:
    """Return flags as an int. Only flags that a message may be sent with are
    allowed."""
    if not isinstance(value, int):
        raise TypeError(f"flags is a ringcast.Flag, not {kind(value)}")
    bits = int(value)               # calculates several times faster than a Flag
    if bits & ~FLAGS:
        raise ConfigError(f"flags {bits:#x} are not all ringcast.Flag: OOB, DONT_LOOPBACK "
                          "and NO_RELIABILITY")
    return bits


def payloads(value: Any) -> list[bytes]:
    """Return the messages of one send_many as a list. The window checks each of
    them."""
    if type(value) is list:
        return value
    if isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Iterable):
        raise TypeError("send_many takes a list of messages, each of them bytes, "
                        f"not {kind(value)}; use send for one message")
    return list(value)


def number(argument: str, value: Any) -> float:
    """Return an int or a float, which is not nan."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{argument} is a number, not {kind(value)}")
    if value != value:
        raise ConfigError(f"{argument} is not a number (nan); pass one")
    return value


def whole(value: Any) -> bool:
    """Return whether `value` is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def kind(value: Any) -> str:
    """Return the name of a value's type, for a sentence."""
    return type(value).__name__
