"""Runs a command for make, whose Ctrl-C is no error: status 130 becomes 0, every other status stays.

Usage: run_for_make.py COMMAND [ARGUMENT...]
"""

import signal
import subprocess
import sys

INTERRUPTED = 130


def main() -> int:
    # A terminal sends Ctrl-C to the command as well, which would inherit that it is ignored, but no handler.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    process = subprocess.Popen(sys.argv[1:])
    # What only make is told is passed on.
    signal.signal(signal.SIGTERM, lambda number, _frame: process.send_signal(number))
    status = process.wait()
    if status in (INTERRUPTED, -signal.SIGINT):
        return 0
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
