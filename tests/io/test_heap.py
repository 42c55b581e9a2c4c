"""How the C library keeps a process's memory."""

import platform
import subprocess
import sys

import pytest

COUNT_HEAPS = """
import ctypes, sys, threading
from smart_mcp_proxy.io.memory import share_heap
if sys.argv[1:] == ["shared"]:
    share_heap()
kept = []
thread = threading.Thread(target=lambda: kept.extend(bytes(2_000) for _ in range(1_000)))
thread.start()
thread.join()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


def heaps(*words: str) -> int:
    """How many heaps a process has in which a second thread has asked for memory."""
    done = subprocess.run([sys.executable, "-c", COUNT_HEAPS, *words], capture_output=True, check=True, timeout=60)
    return done.stdout.count(b"<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not the GNU one")
def test_threads_share_one_heap() -> None:
    assert heaps() == 2
    assert heaps("shared") == 1
