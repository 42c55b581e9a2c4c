"""A server that lists another definition whenever its user is about to decide: no definition is approved unseen."""

import asyncio
import io
import json
import re
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from httpx2 import HTTPStatusError
from transports import SETTLED_S, opened_gateway, rest_at

from smart_mcp_proxy.catalog import change_hash
from smart_mcp_proxy.cli.commands.catalog import approve as approve_command
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.web.serve import open_socket

# Marked long: a server that changes all the time.
pytestmark = [pytest.mark.anyio, pytest.mark.long]

FOLLOWING = Path(__file__).parent / "following_upstream.py"
FLIPPING = Path(__file__).parent / "flipping_upstream.py"
PAINT = ToolKey("up", "paint")
NAMED = {"name": ("up:paint",), "server": ("up",), "all": ()}
WAYS = [*NAMED, "prompt", "REST"]


def paint(text: str) -> dict[str, Any]:
    """A definition of the one tool."""
    return {"name": "paint", "description": text, "inputSchema": {"type": "object"}}


class Terminal(io.StringIO):
    """Standard input at which somebody can be asked."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@dataclass
class World:
    """The gateway, its user at the command line, and what that user has read.

    Attributes:
        seen: Change hashes of definitions that were shown before a decision.
    """

    directory: Path
    gateway: Gateway
    user: Any
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    seen: set[str] = field(default_factory=set)

    async def turn(self, text: str) -> None:
        """The server lists this definition, and the gateway has heard it."""
        part = self.directory / "part"
        part.write_text(json.dumps([paint(text)]))
        part.replace(self.directory / "tools")
        with anyio.fail_after(60):
            while self.listed() != change_hash("up", paint(text)):
                await asyncio.sleep(0.01)

    def listed(self) -> str | None:
        """The hash of the definition that the gateway has heard and stored last."""
        snapshot = self.gateway.catalog.snapshot
        withheld = snapshot.withheld.get(PAINT)
        return snapshot.by_key[PAINT].change_hash if withheld is None else withheld.record.change_hash

    def approved(self) -> str:
        """The hash that is approved on file."""
        with closing(sqlite3.connect(f"file:{self.directory}/d/proxy.db?mode=ro", uri=True)) as file:
            return str(file.execute("SELECT hash FROM approvals WHERE name = 'paint'").fetchone()[0])

    async def look(self, way: str) -> str:
        """Shows what waits and returns the digest that approves it; REST has the hash."""
        if way == "REST":
            shown = (await self.user.get("approvals/up:paint")).raise_for_status().json()
            self.seen.add(shown["approval"]["hash"])
            return str(shown["approval"]["hash"])
        await approve_command.approve(*NAMED[way], every=way == "all", diff=True)
        page = self.capsys.readouterr().out
        self.read(page)
        (digest,) = re.findall(r"--yes --digest (sha256:[0-9a-f]{64})", page)
        return str(digest)

    def read(self, page: str) -> None:
        """Notes the definition that stands on the terminal."""
        for text in re.findall(r"<(.*?)>", re.sub(r"\[-.*?-\]|\{\+|\+\}", "", page)):
            self.seen.add(change_hash("up", paint(f"<{text}>")))

    async def decide(self, way: str, digest: str) -> bool:
        """Approves what was looked at; whether anything was approved."""
        if way == "REST":
            tools = [{"name": "up:paint", "hash": digest}]
            return (await self.user.post("approvals/approve", json={"tools": tools})).status_code == 200
        try:
            await approve_command.approve(*NAMED[way], every=way == "all", yes=True, digest=digest)
        except ProxyError:
            return False
        return "sha256:" in self.capsys.readouterr().out

    async def prompt(self, turned: str | None = None) -> bool:
        """Approves at the question, with another definition listed between the page and the answer."""

        async def answer(question: str) -> bool:  # the gateway runs in this event loop: reading would stop it
            self.read(self.capsys.readouterr().out)
            if turned is not None:
                await self.turn(turned)
            return True

        self.monkeypatch.setattr(sys, "stdin", Terminal())
        self.monkeypatch.setattr(approve_command, "_is_agreed", answer)
        try:
            await approve_command.approve("up:paint")
        except ProxyError:
            return False
        return "sha256:" in self.capsys.readouterr().out


@pytest.fixture
async def world(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., Any]]:
    """Opens a world in front of one of the two servers."""

    @asynccontextmanager
    async def opened(program: Path) -> AsyncIterator[World]:
        (tmp_path / "tools").write_text(json.dumps([paint("<first>")]))
        monkeypatch.setenv("MCPPROXY_DATA_DIR", str(tmp_path / "d"))
        entry = {"command": sys.executable, "args": ["-S", str(program), str(tmp_path)]}
        async with opened_gateway(tmp_path / "d", {"up": entry}) as gateway, open_socket(gateway) as socket:
            assert socket is not None
            gateway.start_upstreams()
            assert await gateway.wait_settled(SETTLED_S)
            async with rest_at(socket) as user:
                made = World(tmp_path, gateway, user, capsys, monkeypatch)
                made.seen.add(change_hash("up", paint("<first>")))
                yield made

    yield opened


async def test_what_is_listed_after_a_look_is_not_approved(world: Callable[..., Any]) -> None:
    """A definition that took the place of the one shown waits; that one is approved once it is back."""
    async with world(FOLLOWING) as at:
        before = "<first>"
        for way in WAYS:
            good, evil = f"<good {way}>", f"<evil {way}>"
            await at.turn(good)
            if way == "prompt":
                assert not await at.prompt(evil)
            else:
                digest = await at.look(way)
                await at.turn(evil)
                assert not await at.decide(way, digest), way
            assert at.approved() == change_hash("up", paint(before)), way
            await at.turn(good)
            assert await (at.prompt() if way == "prompt" else at.decide(way, digest)), way
            assert at.approved() == change_hash("up", paint(good)), way
            before = good


async def flip(at: World, rounds: int) -> None:
    """Decides by every way in turn while the server goes on flipping."""
    for number in range(rounds):
        way = WAYS[number % len(WAYS)]
        with anyio.fail_after(60):
            while PAINT not in at.gateway.catalog.snapshot.withheld:
                await asyncio.sleep(0.001)
        try:
            if way == "prompt":
                await at.prompt()
            else:
                await at.decide(way, await at.look(way))
        except (ProxyError, HTTPStatusError):  # what was to be looked at does not wait any more
            at.capsys.readouterr()
        assert at.approved() in at.seen


async def test_no_definition_of_a_flipping_server_is_approved_unseen(world: Callable[..., Any]) -> None:
    """Each list that it is asked for is another one, and it says at once that there is one more."""
    async with world(FLIPPING) as at:
        await flip(at, 10)


@pytest.mark.soak
async def test_no_definition_of_a_flipping_server_is_approved_unseen_in_the_long_run(world: Callable[..., Any]) -> None:
    """Five hundred decisions."""
    async with world(FLIPPING) as at:
        await flip(at, 500)
