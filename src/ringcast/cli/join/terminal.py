"""A member at a terminal, or in a pipeline."""

import base64
import os
import select
import signal
import sys
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from ringcast import Address, Batch, Channel, ClosedError, Message, NoQuorumError, View
from ringcast.cli.app import discard_output
from ringcast.cli.options import json_line, printable
from ringcast.cli.sentences import folded

GLANCE = 0.1            # seconds after which a terminal without input sees why it should end
PATIENCE = 5.0          # seconds until the last messages are shown, or acknowledged by all
MOMENT = 0.5            # seconds for that after Ctrl-C
LARGEST_READ = 1 << 16


class Terminal:
    """Shows what one channel delivers, and sends what is typed.

    Threads: the channel's thread calls on_message, on_skipped and on_view, and only it
    writes to standard output.
    """

    def __init__(self, as_json: bool, observes: bool = False) -> None:
        self.as_json, self.observes = as_json, observes
        self.page = Console(highlight=False, soft_wrap=True, file=sys.stdout)
        self.ended_by = 0                   # the signal that ends this program
        self.unwritten: OSError | None = None       # why a line could not be written

    def run(self, open_channel: Callable[..., Channel]) -> None:
        """Be a member until the input ends, or a signal ends this program."""
        on_skipped = self.on_skipped if self.observes else None
        channel = open_channel(on_message=self.on_message, on_view=self.on_view,
                               on_skipped=on_skipped)

        def stop(number: int, _: object) -> None:
            self.ended_by = self.ended_by or number
            patience = MOMENT if number == signal.SIGINT else PATIENCE
            start_new_thread(channel.close, (patience,))        # takes no lock in a handler

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        try:
            channel.connect()
            self._send_lines(channel)
            self._show_the_rest(channel)
        except ClosedError:
            if not self.ended_by:
                raise
        finally:
            channel.close()
        if self.unwritten is not None:
            raise self.unwritten
        if self.ended_by:
            raise typer.Exit(128 + self.ended_by)       # as shells report that signal

    # -------------------------------------------------------------------------------------- sending

    def _send_lines(self, channel: Channel) -> None:
        """Send each line of standard input, without its end, until the input ends."""
        rest = b""
        while (more := self._read(channel)) is not None:
            *lines, rest = (rest + more).split(b"\n")
            for line in lines:
                self._send(channel, line)
            if len(rest) > channel.config.max_message_size:
                break                       # send() says so
        if rest:
            self._send(channel, rest)

    def _send(self, channel: Channel, line: bytes) -> None:
        """Send a line. If this member is cut off from the majority, say so once, and
        wait until it is back, or this program ends."""
        is_told = False
        while not self.ended_by:
            try:
                channel.send(line)
                return
            except NoQuorumError as error:
                if not is_told:
                    print(f"ringcast: {error}", file=sys.stderr)
                is_told = True
                time.sleep(GLANCE)

    def _read(self, channel: Channel) -> bytes | None:
        """Return what comes on standard input; None at its end, or if this program
        ends. ClosedError if the channel closes by itself."""
        while not self.ended_by:
            if channel.fault is not None:
                raise ClosedError(channel.fault)
            with suppress(OSError):         # standard input is closed
                if not select.select([0], [], [], GLANCE)[0]:
                    continue
                return os.read(0, LARGEST_READ) or None
            break
        return None

    def _show_the_rest(self, channel: Channel) -> None:
        """Wait until the own messages have been shown, here and everywhere."""
        end = time.monotonic() + PATIENCE
        while (channel.status().multicast.num_unacked and not self.ended_by
               and time.monotonic() < end):
            time.sleep(GLANCE / 10)

    # -------------------------------------------------------------------------------------- showing

    def on_view(self, view: View) -> None:
        """Show who is in the group."""
        if self.as_json:
            self._write_json({"view": {
                "id": view.id, "members": view.names, "coordinator": view.coordinator.name,
                "joined": [member.name for member in view.joined],
                "left": [member.name for member in view.left], "primary": view.primary,
                "absent": [member.name for member in view.absent],
                "observers": [member.name for member in view.observers]}})
            return
        changes = [f"{printable(member.name)} {verb}" for members, verb in
                   ((view.joined, "joined"), (view.left, "left"),
                    (view.absent, "is expected back")) for member in members]
        changes += [] if view.primary else ["not primary"]
        changes = changes or ["the same members"]       # with another key, say
        names = ", ".join(map(printable, view.names))
        self._write_text(Text(folded(f"-- {names} ({'; '.join(changes)})", 3), "cyan"))

    def on_skipped(self, sender: Address, first: int, last: int) -> None:
        """Show what was missed."""
        if self.as_json:
            self._write_json({"skipped": {"sender": sender.name, "first": first, "last": last}})
            return
        self._write_text(Text(f"-- missed messages {first} to {last} of {printable(sender.name)}",
                              "yellow"))

    def on_message(self, batch: Batch) -> None:
        """Show messages."""
        for message in batch:
            if self.as_json:
                self._write_json({"message": described(message)})
            else:
                to_us = "" if message.dest is None else " (to this member alone)"
                self._write_text(Text.assemble(
                    (printable(message.sender.name), "bold"), to_us, ": ",
                    printable(message.payload.decode(errors="backslashreplace"))))

    def _write_json(self, line: dict[str, Any]) -> None:
        self._write(json_line(line) + b"\n")

    def _write_text(self, text: Text) -> None:
        with self._ending_if_unwritable():
            with self.page.capture() as capture:        # writes nothing, but to standard output
                self.page.print(text)
            self._write(capture.get().encode(sys.stdout.encoding, sys.stdout.errors or "strict"))

    def _write(self, line: bytes) -> None:
        """Write a line at once, and all of it. If standard output is full and does not
        block, as another program that shares it may have chosen, wait for room."""
        rest = memoryview(line)
        with self._ending_if_unwritable():
            while rest:
                try:
                    rest = rest[os.write(1, rest):]
                except BlockingIOError:
                    select.select([], [1], [])

    @contextmanager
    def _ending_if_unwritable(self) -> Iterator[None]:
        """If nobody reads any more, end this program quietly; if nothing can be written
        for another reason, end it with the error. After that, write to nowhere."""
        try:
            yield
        except OSError as error:
            self.unwritten = None if isinstance(error, BrokenPipeError) else error
            self.ended_by = signal.SIGPIPE
            discard_output()


def described(message: Message) -> dict[str, Any]:
    """Return what JSON tells of a message."""
    shown: dict[str, Any] = {"sender": message.sender.name, "seqno": message.seqno}
    if message.dest is not None:
        shown["dest"] = message.dest.name
    try:
        shown["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        shown["payload_base64"] = base64.b64encode(message.payload).decode()
    return shown
