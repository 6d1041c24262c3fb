"""IPv4 addresses and errors, the same for every transport over IP.

A wrong option raises ConfigError and what the machine refuses raises TransportError,
each with one sentence that says what to do. What a remote member says about itself
never raises: it is an address, or None.
"""

from __future__ import annotations

import errno
import ipaddress
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ringcast.errors import ConfigError, TransportError

HostPort = tuple[str, int]

MOST_PLACES = 1024      # where other members may be


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise ConfigError if an option is no int in low .. high."""
    if not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name}={value!r} is outside {low}..{high}")


def check_interface(interface: str, insecure: bool) -> ipaddress.IPv4Address:
    """Return the address of one network interface. ConfigError if it is none, or if it
    is not loopback, and datagrams are neither sealed nor `insecure` (decision 24)."""
    address = parse_address("interface", interface)
    if not names_one_host(address):
        raise ConfigError(f"interface={interface!r} is not the address of one interface; "
                          "`ip -4 address` lists them")
    if not address.is_loopback and not insecure:
        raise ConfigError(f"interface={interface!r} is not loopback: give a secret, the path of a "
                          "file from `ringcast keygen` (secret=, or --secret-file), or the folder "
                          "from `ringcast trust new` (trust=, or --trust); or say insecure=True "
                          "(--set insecure=True) if everybody on that network may read and write "
                          "the group's messages")
    return address


def parse_address(name: str, text: str) -> ipaddress.IPv4Address:
    """Return the IPv4 address that an option gives; ConfigError if it gives none."""
    try:
        return ipaddress.IPv4Address(text if isinstance(text, str) else "")
    except ValueError:
        raise ConfigError(f"{name}={text!r} is not an IPv4 address "
                          "in the form 127.0.0.1") from None


def names_one_host(address: ipaddress.IPv4Address) -> bool:
    """Return whether an address can be that of one host."""
    return not (address.is_multicast or address.is_unspecified or address.is_reserved)


def parse_host_port(physical: object, loopback: bool) -> HostPort | None:
    """Return the host and port of `address:port`, or None for what a faulty or hostile
    peer says: no such text, an address of several hosts, or one that is loopback when
    we are not on `loopback`, or the other way round."""
    host, _, port = physical.rpartition(":") if isinstance(physical, str) else ("", "", "")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        return None
    try:
        address = ipaddress.IPv4Address(host)
    except ValueError:
        return None
    if not names_one_host(address) or address.is_loopback != loopback:
        return None
    return host, int(port)


def parse_places(addresses: Collection[object], loopback: bool,
                 ports: Sequence[int]) -> tuple[list[HostPort], list[str]]:
    """Return the places that addresses name, each once, and the addresses that name
    none or are too many. An address without a port stands for all `ports`."""
    places: dict[HostPort, None] = {}
    bad: list[str] = []
    for address in addresses:
        named = [address] if ":" in str(address) else [f"{address}:{port}" for port in ports]
        found = [place for each in named
                 if (place := parse_host_port(each, loopback)) is not None]
        new = [place for place in found if place not in places]
        if not found or len(places) + len(new) > MOST_PLACES:
            bad.append(str(address))
        else:
            places.update(dict.fromkeys(new))
    return list(places), bad


@contextmanager
def os_errors_as(protocol: str, sentences: Mapping[int, str]) -> Iterator[None]:
    """Turn an OSError into a TransportError: with the sentence for its number, or else
    with the kernel's own words."""
    try:
        yield
    except OSError as error:
        code = error.errno or 0
        known = {errno.EMFILE: "this process has too many files open; close some or raise its "
                               "limit (ulimit -n)", **sentences}
        sentence = known.get(code, f"{protocol} could not start: {os.strerror(code)}")
        raise TransportError(code, sentence) from error


def no_such_interface(interface: str) -> dict[int, str]:
    """Return the sentences for errors of binding to an interface's address."""
    sentence = (f"no interface that is up has the address {interface}; choose one that "
                "`ip -4 address` lists, or bring it up")
    return {errno.EADDRNOTAVAIL: sentence, errno.ENODEV: sentence}


def no_permission(port: int) -> dict[int, str]:
    """Return the sentence for the error of binding to a port of the system."""
    return {errno.EACCES: f"no permission to use port {port}; choose a port above 1023"}
