"""The example of the library runs, and says what it says."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "proxy_tool.py"
OUTPUT = """\
ProxyResponseInfo(proxy_type='tool', proxy_action='list', proxy_path=None, python_type='Tool', many=True, \
content_type=None, total_count=1, next_cursor=None)
application/json {"length":"m"} text/plain
['add']
8
text/plain
Explain gateway in one sentence.
"""


@pytest.mark.long  # a process with servers of its own
def test_the_example_runs() -> None:
    """To the letter."""
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == (OUTPUT, 0), done.stderr
