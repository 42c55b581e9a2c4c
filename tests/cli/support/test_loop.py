"""The event loop that the gateway serves on."""

import asyncio
from typing import NoReturn

import anyio
import pytest

from smart_mcp_proxy.cli.support import loop

sniffio = pytest.importorskip("sniffio", reason="sniffio is not installed: anyio looks for the loop that runs")


def no_look() -> NoReturn:
    raise AssertionError("the library that runs was looked for")


def test_no_lock_looks_for_the_library_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> int:
        monkeypatch.setattr(asyncio, "current_task", no_look)
        try:
            return anyio.Event().is_set() + 3
        finally:
            monkeypatch.undo()

    assert loop.run(work()) == 3
