"""Worker process that shares a port with others; started by `workers.py`, never by hand."""

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from typing import Any, Final

from smart_mcp_proxy.cli.commands.operate.serving_http import serve_agents_over_http
from smart_mcp_proxy.cli.support.failure import exit_status, report
from smart_mcp_proxy.cli.support.loop import run
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.io.worker import Worker

_STDERR: Final = 2


def _keep_from_children(order: dict[str, Any]) -> None:
    """Lets no process that this one starts inherit what its parent handed it.

    A server could accept clients and read their tokens, or reach other servers through a letter box.
    """
    for descriptor in (order["listener"], order["life"], *order["sending"], order["receiving"], order["report"]):
        os.set_inheritable(descriptor, False)
    # uvloop starts this process with second copies of its standard streams: a server would keep their readers waiting.
    with suppress(FileNotFoundError):  # there is no such folder everywhere
        for descriptor in map(int, os.listdir("/dev/fd")):
            with suppress(OSError):  # that of the listing
                os.set_inheritable(descriptor, descriptor <= _STDERR)


async def _serve(order: dict[str, Any]) -> int:
    settings = open_settings(is_serving=True, **order["flags"], log_level=order["log_level"])
    asyncio.get_running_loop().add_reader(order["life"], _end_with_parent, order["life"])
    _beat(order)
    worker = Worker(
        order["number"],
        [socket.socket(fileno=descriptor) for descriptor in order["sending"]],
        socket.socket(fileno=order["receiving"]),
    )
    with socket.socket(fileno=order["listener"]) as listener:
        return await serve_agents_over_http(
            settings,
            listener,
            passthrough=order["passthrough"],
            as_json=order["as_json"],
            worker=worker,
            is_reported=order["is_reported"],
            on_report=partial(_say, order, order["reported"]),
        )


def _beat(order: dict[str, Any]) -> None:
    """Tell the parent, now and ever after, that this process works: it ends one that says nothing."""
    _say(order, order["number"])
    asyncio.get_running_loop().call_later(order["beat_s"], _beat, order)


def _say(order: dict[str, Any], word: int) -> None:
    with suppress(OSError):  # a parent that was stopped has not read what came before, or there is none any more
        os.write(order["report"], bytes([word]))


def _end_with_parent(life: int) -> None:
    """Ends in good order once the parent is gone: nobody would end this process any more."""
    asyncio.get_running_loop().remove_reader(life)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Serves as the JSON in the first argument says; returns the exit status."""
    order = json.loads(sys.argv[1])
    _keep_from_children(order)
    try:
        return run(_serve(order))
    except ProxyError as error:
        report(error, as_json=False)
        return exit_status(error)


if __name__ == "__main__":
    sys.exit(main())
