"""The `ringcast` command; one file per command, found by its name.

Exit status: 0 when it did what it says, 1 when a check that it makes failed, 2 when it
was asked for something that cannot be, 3 when an audit cannot tell. Errors of ringcast
are one sentence on standard error, never a traceback.
"""

import sys


def main() -> None:
    """Entry point of the `ringcast` script."""
    try:
        import typer  # noqa: F401
    except ImportError:
        sys.exit("ringcast: the commands need the extra packages of `pip install 'ringcast[cli]'`")
    from ringcast.cli import audit, journal, publish, record, simulate  # noqa: F401  (importing a command adds it)
    from ringcast.cli.app import run
    from ringcast.cli.demo import command  # noqa: F401
    from ringcast.cli.perf import command as perf  # noqa: F401

    run()
