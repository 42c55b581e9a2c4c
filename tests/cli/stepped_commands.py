"""Commands that change clients' files, each of which kills itself at a step.

A line on stdin, `FOLDER STEP [STEP] WORDS`, begins one command for each step, at once: forks of this process, in which
all is imported already, each in that folder with its `home` and `data`. A step is a line of the modules that touch the
files. The process ends by SIGKILL right before step number STEP, or else with its command. A line on stdout says how
they ended: exit statuses, negative for a signal.
"""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from smart_mcp_proxy import file_changes
from smart_mcp_proxy.cli.app import main as run_command
from smart_mcp_proxy.cli.commands.servers import client_choice, connect, disconnect
from smart_mcp_proxy.client_files import files, records

__all__ = ["NEVER"]

NEVER = 1_000_000
LOADED = (client_choice, connect, disconnect)
WATCHED = frozenset(str(module.__file__) for module in (file_changes, files, records))


class Steps:
    """Counts lines, and ends the process right before one of them.

    Args:
        last: The number of that line; beyond the end for none.
    """

    def __init__(self, last: int) -> None:
        self._left = last

    def enter(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """A function is called."""
        return self.take if frame.f_code.co_filename in WATCHED else None

    def take(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        """A line is about to be run."""
        if event == "line":
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.take


def begin(folder: str, words: list[str], step: int) -> int:
    """A process that runs the command as far as that step; its number."""
    if pid := os.fork():
        return pid
    for stream, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY)):
        null = os.open(os.devnull, flags)
        os.dup2(null, stream)
    os.chdir(folder)
    os.environ |= {"HOME": f"{folder}/home", "MCPPROXY_DATA_DIR": f"{folder}/data"}
    steps = Steps(step)
    threading.settrace(steps.enter)
    sys.settrace(steps.enter)
    sys.argv = ["mcpproxy", *words]
    os._exit(run_command())


def main() -> None:
    for line in sys.stdin:
        folder, *words = line.split()
        steps = [int(word) for word in words if word.isdigit()]
        pids = [begin(folder, words[len(steps) :], step) for step in steps]
        print(*(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids), flush=True)


if __name__ == "__main__":
    main()
