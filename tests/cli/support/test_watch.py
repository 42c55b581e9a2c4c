"""The server file is followed: changes are applied, nothing else restarts, a broken file changes nothing."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from cli_runs import some_servers

from smart_mcp_proxy.cli.support.watch import follow_config, next_servers
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.servers import Profile, ServerConfig, ServerFile, load_servers
from smart_mcp_proxy.settings import Settings, environment

pytestmark = pytest.mark.anyio

PATIENCE_S = 10


def entry(command: str) -> dict[str, Any]:
    return {"command": command}


def file_of(**servers: Any) -> str:
    return json.dumps({"mcpServers": servers})


class Followed:
    """What a follower has applied, one state after the other."""

    def __init__(self) -> None:
        self.states: asyncio.Queue[Mapping[str, ServerConfig]] = asyncio.Queue()
        self.profiles: Mapping[str, Profile] = {}

    async def take(self, servers: Mapping[str, ServerConfig], profiles: Mapping[str, Profile]) -> None:
        """Keeps a state."""
        self.profiles = profiles
        await self.states.put(servers)

    async def next(self) -> dict[str, str]:
        """The commands of the next state that is applied."""
        with anyio.fail_after(PATIENCE_S):
            return {name: config.command for name, config in (await self.states.get()).items()}


@asynccontextmanager
async def following(settings: Settings, cwd: Path, current: Mapping[str, ServerConfig]) -> AsyncIterator[Followed]:
    followed = Followed()
    task = asyncio.create_task(follow_config(settings, cwd, ServerFile(current), followed.take))
    try:
        yield followed
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


async def test_a_file_that_is_written_over_or_replaced_is_applied(tmp_path: Path, data: Path) -> None:
    """In place, and by another file under its name as editors do it."""
    path = tmp_path / "mcp_config.json"
    path.write_text(file_of(a=entry("one")))
    async with following(Settings(data_dir=data), tmp_path, load_servers(path).servers) as followed:
        path.write_text(file_of(a=entry("two")))
        assert await followed.next() == {"a": "two"}
        (tmp_path / "new").write_text(file_of(a=entry("two"), b=entry("three")))
        os.replace(tmp_path / "new", path)
        assert await followed.next() == {"a": "two", "b": "three"}


async def test_a_file_that_appears_later_is_applied(tmp_path: Path, data: Path) -> None:
    """From then on it is that: one in the working directory, where servers may write, does not take its place."""
    async with following(Settings(data_dir=data), tmp_path, {}) as followed:
        (data / "mcp_config.json").write_text(file_of(a=entry("one")))
        assert await followed.next() == {"a": "one"}
        (tmp_path / "mcp_config.json").write_text(file_of(b=entry("two")))
        (data / "mcp_config.json").write_text(file_of(c=entry("three")))
        assert await followed.next() == {"c": "three"}


async def test_a_link_that_is_turned_elsewhere_is_followed(tmp_path: Path, data: Path) -> None:
    """As mounted configuration is replaced: the name stays, a folder behind it changes."""
    for name, command in (("v1", "one"), ("v2", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "servers.json").write_text(file_of(a=entry(command)))
    (tmp_path / "current").symlink_to("v1")
    (tmp_path / "servers.json").symlink_to("current/servers.json")
    settings = Settings(data_dir=data, config_path=tmp_path / "servers.json")
    current = load_servers(tmp_path / "servers.json").servers
    async with following(settings, tmp_path, current) as followed:
        (tmp_path / "next").symlink_to("v2")
        os.replace(tmp_path / "next", tmp_path / "current")
        assert await followed.next() == {"a": "two"}


@pytest.mark.parametrize("content", ["{", "", "[1", None])
async def test_an_invalid_or_missing_file_keeps_the_last_good_one(
    tmp_path: Path, data: Path, content: str | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning says so, and the next good file is applied."""
    path = tmp_path / "mcp_config.json"
    path.write_text(file_of(a=entry("one")))
    warned = asyncio.Event()

    def note(record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            warned.set()

    monkeypatch.setattr(caplog.handler, "emit", note)
    async with following(Settings(data_dir=data), tmp_path, load_servers(path).servers) as followed:
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
        with anyio.fail_after(PATIENCE_S):
            await warned.wait()
        path.write_text(file_of(a=entry("two")))
        assert await followed.next() == {"a": "two"}
        assert followed.states.empty()


def test_a_broken_entry_keeps_that_server_as_it_was() -> None:
    """The other entries of the file count; a server whose entry is gone is gone."""
    current = load_servers(file_of(a=entry("one"), b=entry("two"), c=entry("three"))).servers
    file = load_servers(file_of(a={"args": 7}, b=entry("new"), d={"args": 7}))
    servers = next_servers(file, current)
    assert {name: config.command for name, config in servers.items()} == {"a": "one", "b": "new", "d": ""}
    assert servers["d"].refusal is not None


@pytest.mark.long  # a third of a second of processor time
async def test_only_what_changed_is_restarted(tmp_path: Path, data: Path) -> None:
    """With a real gateway: the untouched server keeps its session, the new one comes, the removed one goes."""
    path = tmp_path / "mcp_config.json"
    path.write_text(json.dumps(some_servers("todo", "clock")))
    servers = load_servers(path).servers
    async with open_gateway(Settings(data_dir=data), servers, environ=environment()) as gateway:
        gateway.start_upstreams()
        assert await gateway.wait_settled(PATIENCE_S)
        kept, gone = gateway.upstreams.fleet.upstreams.get("todo"), gateway.upstreams.fleet.upstreams.get("clock")
        assert kept is not None and gone is not None
        applied = asyncio.Event()

        async def apply(now: Mapping[str, ServerConfig], profiles: Mapping[str, Profile]) -> None:
            await gateway.apply(now, profiles)
            applied.set()

        task = asyncio.create_task(follow_config(gateway.settings, tmp_path, ServerFile(servers), apply))
        path.write_text(json.dumps(some_servers("todo", "colors")))
        with anyio.fail_after(PATIENCE_S):
            await applied.wait()
        assert await gateway.wait_settled(PATIENCE_S)
        assert gateway.upstreams.fleet.upstreams.get("todo") is kept
        assert kept.status.restarts == 0
        assert gone.status.state == "disconnected"
        assert set(gateway.status().tools) == {"todo", "colors"}
        assert gateway.status().tools["colors"] > 0
        task.cancel()
        await asyncio.wait([task])


async def test_a_change_of_the_profiles_alone_is_applied(tmp_path: Path, data: Path) -> None:
    """With the servers as they were."""
    path = tmp_path / "mcp_config.json"
    document = {"mcpServers": {"a": entry("one")}, "profiles": {"work": {"servers": ["a"]}}}
    path.write_text(json.dumps(document))
    async with following(Settings(data_dir=data), tmp_path, load_servers(path).servers) as followed:
        assert await followed.next() == {"a": "one"}
        assert set(followed.profiles) == {"work"}
        path.write_text(json.dumps(document | {"profiles": {"play": {}}}))
        assert await followed.next() == {"a": "one"}
        assert set(followed.profiles) == {"play"}


@pytest.mark.long  # a third of a second of processor time
async def test_a_change_made_through_the_gateway_is_applied_once_and_at_once(tmp_path: Path, data: Path) -> None:
    """Who makes it has it in force with the answer; the watch then finds nothing new."""
    path = tmp_path / "mcp_config.json"
    path.write_text(file_of(a=entry("one") | {"disabled": True}))
    settings, servers = Settings(data_dir=data, config_path=path), load_servers(path).servers
    async with open_gateway(settings, servers, environ=environment()) as gateway:
        applied = 0
        following = asyncio.Event()

        async def apply(now: Mapping[str, ServerConfig], profiles: Mapping[str, Profile]) -> None:
            nonlocal applied
            applied += 1
            await gateway.apply(now, profiles)

        def on_follow(look: Any) -> None:
            gateway.admin.management.apply_with(look)
            following.set()

        work = follow_config(settings, tmp_path, ServerFile(servers), apply, on_follow=on_follow)
        task = asyncio.create_task(work)
        with anyio.fail_after(PATIENCE_S):
            await following.wait()
            changes = [gateway.admin.management.patch("a", {"env": {f"A{n}": "1"}}, "operator") for n in range(3)]
            for change in changes:
                assert (await change).changed
            assert len(gateway.visible.servers["a"].env) == applied == 3
            path.write_text(file_of(a=entry("two") | {"disabled": True}))
            while gateway.visible.servers["a"].command != "two":
                await asyncio.sleep(0)
        assert applied == 4
        task.cancel()
        await asyncio.wait([task])
