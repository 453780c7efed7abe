"""The command `potluck`."""

import signal
import sys

from ._native import _command


def main() -> int:
    """Runs the command line; returns its exit code."""
    # As for any other command, and for the programs that it starts: Python's own handler would
    # wait until the command has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    # `-P`: not a file of the same name in the current folder.
    return _command(sys.argv[1:], [sys.executable, "-P", "-m", "potluck._cli"])


if __name__ == "__main__":
    sys.exit(main())
