"""The `ringcast` command; each command has a file of its own.

Exit status: 0 if the command succeeded, 1 if a check that it makes failed, 2 for a
mistake in the call, 3 if an audit cannot tell, 130 after Ctrl-C. Errors of ringcast
are one sentence on standard error, never a traceback.
"""

import sys

INTERRUPTED = 130       # exit status after Ctrl-C, as in shells


def main() -> None:
    """Run the `ringcast` script."""
    try:
        try:
            import typer  # noqa: F401
        except ImportError:
            sys.exit("ringcast: the commands need the extra packages of "
                     "`pip install 'ringcast[cli]'`")
        from ringcast.cli.app import run

        run()
    except KeyboardInterrupt:           # while modules are loaded
        sys.exit(INTERRUPTED)
