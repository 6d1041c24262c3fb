"""The `ringcast` command; each command has a file of its own.

Exit status: 0 if the command succeeded, 1 if a check that it makes failed, 2 for a
mistake in the call, 3 if an audit cannot tell, 130 after Ctrl-C. Errors of ringcast
are one sentence on standard error, never a traceback.
"""

import sys

INTERRUPTED = 130       # exit status after Ctrl-C, as in shells


def main() -> None:
    """Run the `ringcast` script."""
    open_missing()
    write_everything()
    try:
        import atexit
        import signal

        # Python gives Ctrl-C back to the system before it takes its modules apart, and
        # the system would kill us in the middle of that. By then all is done, so it is
        # ignored. What was registered first is called last.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        try:
            import typer  # noqa: F401
        except ImportError:
            sys.exit("ringcast: the commands need the extra packages of "
                     "`pip install 'ringcast[cli]'`")
        from ringcast.cli.app import run

        run()
    except KeyboardInterrupt:           # while modules are loaded
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, leave)


def open_missing() -> None:
    """Open /dev/null in the place of standard streams that are closed. Else a socket
    would take their numbers, and be read as the input, or written to as the output."""
    import os

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:                  # files take the lowest number that is free
            setattr(sys, name, open(os.devnull, mode))


def write_everything() -> None:
    """Let the output escape characters that its encoding lacks, as JSON does."""
    import codecs
    from io import TextIOWrapper

    def escaped(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        units = error.object[error.start:error.end].encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at:at + 4]}" for at in range(0, len(units), 4)), error.end

    codecs.register_error("ringcast", escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="ringcast")


def leave(*_: object) -> None:
    """End at once, because Ctrl-C came when the command had ended and Python waited for
    its threads and for what modules do at the end."""
    import os
    from contextlib import suppress

    from ringcast.cli.interrupts import end_java

    end_java()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(INTERRUPTED)
