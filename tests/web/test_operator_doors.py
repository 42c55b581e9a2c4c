"""The operator's doors, Unix socket, REST and page, and processes of servers at them."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from page_gateway import Opened, browser, opened, settled_records, tool

from smart_mcp_proxy.cli.support.api import find_running_gateways
from smart_mcp_proxy.errors import ProxyError, RefusedError
from smart_mcp_proxy.io.server_processes import MARK, tag_server
from smart_mcp_proxy.models import CallRequest
from smart_mcp_proxy.web.rest import operator_token
from smart_mcp_proxy.web.serve import open_socket

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are found in /proc"),
]
PROGRAM = (sys.executable, "-I", "-S", str(Path(__file__).parents[1] / "interaction" / "reaching.py"))
UPSTREAM = Path(__file__).parents[1] / "interaction" / "reaching_upstream.py"
SOCKET, REST = 0, 1


class Guarded(NamedTuple):
    """A gateway with both doors, and the server `reaching` that tries them.

    Attributes:
        there: The gateway.
        doors: As `reaching.py` takes them: the socket, and REST with the right token.
    """

    there: Opened
    doors: tuple[str, str]

    async def reach(self, *words: str, environ: Mapping[str, str] | None = None) -> list[tuple[int, Any]]:
        """What both doors say to a process of this machine that no server started."""
        asked = await asyncio.create_subprocess_exec(
            *PROGRAM, *words, *self.doors, stdout=asyncio.subprocess.PIPE, env=environ or {}
        )
        said, _ = await asked.communicate()
        return read_answers(said)

    async def let_server_reach(self, way: str) -> list[tuple[int, Any]]:
        """What both doors say to a process that the server started."""
        result = await self.there.gateway.requests.calls.call(CallRequest(f"reaching:{way}", {}, "write"))
        return read_answers(json.loads(bytes(result.text))["content"][0]["text"])


def read_answers(text: bytes | str) -> list[tuple[int, Any]]:
    """Status and error of each door, or the page that it showed."""
    read = {"{": lambda body: json.loads(body).get("error")}
    return [(status, read.get(body[:1], str)(body)) for status, body in json.loads(text)]


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[Guarded]:
    """A gateway with both doors open."""
    doors = folder / "doors"
    others = {"reaching": {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(doors)], "isolation": "none"}}
    async with opened(folder, [tool("a")], others) as there, open_socket(there.gateway) as path:
        rest = f"{there.base.removeprefix('http://')} {operator_token(there.gateway.settings)}"
        doors.write_text(f"{path}\n{rest}\n")
        yield Guarded(there, (str(path), rest))


@pytest.mark.long  # a third of a second of processor time
async def test_no_process_of_a_server_is_an_operator(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither itself nor what it starts, leaves behind, gives other variables, or lets no privileges be gained."""
    async with guarded(tmp_path) as guard:
        for way in ("itself", "grandchild", "detached", "disguised", "confined"):
            for status, error in await guard.let_server_reach(way):
                assert (status, error["code"]) == (403, "server_process"), way
                assert ("'reaching'" in error["message"]) == (way not in ("disguised", "confined")), error
        told = [record.getMessage() for record in caplog.records if record.name.endswith(".doors")]
        assert len(told) == 2 and "'reaching'" in told[0], told  # once a minute, by name and without
        first, second = sorted(await settled_records(guard.there, "config", 2), key=lambda each: each["server"])
        assert (first["outcome"], second["outcome"]) == ("server_process",) * 2
        assert (first["server"], second["server"]) == ("", "reaching")


@pytest.mark.long  # a third of a second of processor time
async def test_a_stranger_of_the_same_user_is_let_in(tmp_path: Path) -> None:
    """A terminal of this machine, whatever an unrelated gateway's hook or door left in its variables."""
    async with guarded(tmp_path) as guard:
        assert await guard.reach() == [(200, None)] * 2
        assert await guard.reach(environ={MARK: "0123456789abcdef"}) == [(200, None)] * 2
        async with browser(guard.there) as page:
            assert (await page.get("servers")).status_code == 200


@pytest.mark.long  # a third of a second of processor time
async def test_each_sign_of_a_server_is_enough_alone(tmp_path: Path) -> None:
    """The mark, with the server's name; the limit; and at the socket, that no privileges can be gained."""
    async with guarded(tmp_path) as guard:
        marked = await guard.reach(environ={MARK: f"0123456789abcdef.{tag_server('reaching')}"})
        assert [(status, "'reaching'" in error["message"]) for status, error in marked] == [(403, True)] * 2
        lowered = await guard.reach("--lowered")
        assert [status for status, _ in lowered] == [403, 403]
        confined = await guard.reach("--confined")
        assert confined[SOCKET][0] == 403 and "NoNewPrivs" in confined[SOCKET][1]["message"]
        assert "NoNewPrivileges=yes" in confined[SOCKET][1]["hint"]
        assert confined[REST] == (200, None)  # sandboxed browsers have it, too, and the token says who they are


@pytest.mark.long  # a third of a second of processor time
async def test_the_page_refuses_a_browser_that_a_server_started(tmp_path: Path) -> None:
    """Although its session is good."""
    async with guarded(tmp_path) as guard, browser(guard.there) as page:
        cookies = "; ".join(f"{name}={value}" for name, value in page.client.cookies.items())
        refused = await guard.reach("--page", cookies, "--lowered")
        assert refused[REST][0] == 403 and "servers may not" in refused[REST][1]


@pytest.mark.long  # a third of a second of processor time
async def test_a_command_that_a_server_starts_says_why_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of taking the gateway for one that does not run."""
    async with guarded(tmp_path) as guard:
        look = guard.there.gateway.admin.doors

        def refuse(peer: object) -> None:
            raise RefusedError("Process 7 is one of server 'x'.", code="server_process")

        monkeypatch.setattr(look, "check_peer", refuse)
        with pytest.raises(ProxyError, match="server 'x'"):
            await find_running_gateways(guard.there.gateway.settings.data_dir)


@pytest.mark.long  # a third of a second of processor time
async def test_a_caller_that_has_left_is_no_operator(tmp_path: Path) -> None:
    """What it asked for is not done: nobody can say any more whose process it was."""
    async with guarded(tmp_path) as guard:
        doors = guard.there.gateway.admin.doors
        host, _, port = guard.there.base.removeprefix("http://").rpartition(":")
        with pytest.raises(RefusedError, match="has ended"):
            await doors.check_connection((host, 1), (host, int(port)))
        await doors.check_connection(("192.0.2.1", 1), (host, int(port)))  # of another machine


@pytest.mark.long  # a third of a second of processor time
async def test_a_browser_that_went_to_another_page_is_no_alarm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It reads nothing, and nothing is told of it; a change that was asked for is told."""
    async with guarded(tmp_path) as guard:
        doors = guard.there.gateway.admin.doors
        host, _, port = guard.there.base.removeprefix("http://").rpartition(":")
        for is_read, told in ((True, 0), (False, 1)):
            with pytest.raises(RefusedError, match="has ended"):
                await doors.check_connection((host, 1), (host, int(port)), is_read=is_read)
            assert len([each for each in caplog.records if each.name.endswith(".doors")]) == told
