"""As a program it is `mcpproxy` on a wall clock that a file moves: jumping_clock FILE WORDS. It holds seconds."""

import sys
import time
from pathlib import Path


def move(file: Path) -> None:
    """Has the clock of this process be off by what the file says at each look."""
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + float(file.read_text())
    time.time_ns = lambda: right_ns() + int(float(file.read_text()) * 1e9)


if __name__ == "__main__":
    move(Path(sys.argv.pop(1)))  # before anything of ours is imported and keeps the right one

    from smart_mcp_proxy.cli import main

    main()
