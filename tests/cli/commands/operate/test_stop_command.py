"""`mcpproxy stop`: which processes count as ended."""

import os
import subprocess
import sys

import pytest

from smart_mcp_proxy.cli.commands.operate.stop import wait_ended


@pytest.mark.skipif(sys.platform != "linux", reason="it is seen in /proc")
def test_a_process_that_ended_and_was_waited_for_by_nobody_does_not_go_on() -> None:
    """As in a container whose first process takes note of no end."""
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)

        assert wait_ended([ended.pid], 0) == []


def test_a_process_that_goes_on_is_named() -> None:
    assert wait_ended([os.getpid()], 0) == [os.getpid()]
