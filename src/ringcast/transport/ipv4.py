"""IPv4 endpoints, the same for every transport over IP: what may be bound to, what is
refused, and with which sentence.

A wrong option of this program's raises ConfigError and what the machine refuses
TransportError, each with one sentence that says what to do. What a remote member says
of itself never raises: it makes sense or is None.
"""

from __future__ import annotations

import errno
import ipaddress
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ringcast.errors import ConfigError, TransportError


def check_range(name: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name}={value!r} is outside {low}..{high}")


def check_interface(interface: str, insecure: bool) -> ipaddress.IPv4Address:
    """One interface's address; other than loopback only for who says that he knows what
    that means (decision 24)."""
    address = parse_address("interface", interface)
    if not names_one_host(address):
        raise ConfigError(f"interface={interface!r} is not the address of one interface; `ip -4 address` lists them")
    if not address.is_loopback and not insecure:
        raise ConfigError(
            f"interface={interface!r} is not loopback, and ringcast does not encrypt or "
            f"authenticate yet: "
            "say insecure=True if everybody on that network may read and write the group's messages"
        )
    return address


def parse_address(name: str, text: str) -> ipaddress.IPv4Address:
    try:
        return ipaddress.IPv4Address(text if isinstance(text, str) else "")
    except ValueError:
        raise ConfigError(f"{name}={text!r} is not an IPv4 address in the form 127.0.0.1") from None


def names_one_host(address: ipaddress.IPv4Address) -> bool:
    return not (address.is_multicast or address.is_unspecified or address.is_reserved)


def endpoint(physical: object, loopback: bool) -> tuple[str, int] | None:
    """The host and port of `address:port`; None for what a confused or hostile peer
    says: also for addresses that would reach more than one host, or loopback when we
    are not on it, or the other way round.
    """
    host, _, port = physical.rpartition(":") if isinstance(physical, str) else ("", "", "")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        return None
    try:
        address = ipaddress.IPv4Address(host)
    except ValueError:
        return None
    return (host,
            int(port)) if names_one_host(address) and address.is_loopback == loopback else None


@contextmanager
def os_errors_as(protocol: str, sentences: Mapping[int, str]) -> Iterator[None]:
    """Turn the errors named into the sentence that says what to do, and any other into
    the kernel's own words."""
    try:
        yield
    except OSError as error:
        code = error.errno or 0
        anywhere = {errno.EMFILE: "this process has too many files open; close some or raise its limit (ulimit -n)"}
        sentence = {**anywhere, **sentences}.get(code,
                                                 f"{protocol} could not start: {os.strerror(code)}")
        raise TransportError(code, sentence) from error


def no_such_interface(interface: str) -> dict[int, str]:
    """For who binds to the address of an interface."""
    sentence = f"no interface that is up has the address {interface}; choose one that `ip -4 address` lists, or bring it up"
    return {errno.EADDRNOTAVAIL: sentence, errno.ENODEV: sentence}
