"""Subscriptions to single resources, over every transport and at servers of both eras: who hears of what, and what
the servers are asked for that."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from agents import META, PAUSE_S, Agent, Era, StreamAgent
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_agent_passthrough import Announcements, listed
from transports import CHANNELS, agent_at, in_memory, opened_gateway, over_http, served, settled

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope
from smart_mcp_proxy.gateway.sessions import subscriptions
from smart_mcp_proxy.gateway.sessions.subscriptions import PER_CLIENT

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LIMIT_S = 60
UPSTREAM = Path(__file__).parent / "watched_upstream.py"
ERAS: tuple[Era, ...] = ("handshake", "modern")
UPDATED = "notifications/resources/updated"
MEMOS = [f"memo://{number}" for number in range(4)]
ONE, TWO, LAST = MEMOS[0], MEMOS[1], MEMOS[-1]
LISTED: dict[str, Any] = {
    "resources": [{"uri": uri, "name": uri} for uri in (*MEMOS, "memo://refused")],
    "resourceTemplates": [{"uriTemplate": "memo://t/{id}", "name": "t"}],
}


def watched(mode: str, file: Path, **entry: Any) -> dict[str, Any]:
    """The configuration of a server that lists what is in `file`."""
    return {"command": sys.executable, "args": ["-S", str(UPSTREAM), mode, str(file)], **entry}


def shown(uri: str, server: str = "fx") -> str:
    """A resource's URI as agents know it."""
    return f"mcpproxy://{server}/{quote(uri, safe='')}"


class Ear:
    """What an agent hears of single resources.

    Args:
        agent: Subscribes.
        server: Whose resources.
        is_passed: Whether they go by their own URIs.
    """

    def __init__(self, agent: Agent, server: str = "fx", *, is_passed: bool = False) -> None:
        self.agent = agent
        self.told = Announcements(agent)
        self._server = server
        self._is_passed = is_passed
        self._stream: int | None = None

    def uri(self, own: str) -> str:
        return own if self._is_passed else shown(own, self._server)

    async def open(self, *owns: str) -> None:
        """Subscribes to these; nothing of them is missed from here on."""
        uris = [self.uri(own) for own in owns]
        if self.agent.era == "modern":
            await self.told.subscribe({"resourceSubscriptions": uris})  # type: ignore[dict-item]
            self._stream = self.told.heard()[-1]["params"]["_meta"][META + "subscriptionId"]
            return
        await self.told.subscribe()
        for uri in uris:
            assert (await self.agent.request("resources/subscribe", uri=uri))["result"] == {}

    async def close(self) -> None:
        """Stops listening."""
        if self._stream is not None and isinstance(self.agent, StreamAgent):
            await self.agent.notify("notifications/cancelled", requestId=self._stream)
            await listed(self.agent)  # the gateway has read it
        await self.told.close()

    def heard(self) -> list[str]:
        """The URIs that it heard of, in order."""
        return [message["params"]["uri"] for message in self.told.heard() if message["method"] == UPDATED]

    async def touch(self, *owns: str) -> None:
        """Has the server change resources."""
        if self._is_passed:
            answer = await self.agent.request("tools/call", name="touch", arguments={"uris": owns})
            assert "result" in answer, answer
        else:
            await self.agent.call("call_tool_write", name=f"{self._server}:touch", args={"uris": owns})

    async def until(self, own: str, count: int = 1) -> None:
        """Returns when it has heard of this one so often."""
        with anyio.fail_after(LIMIT_S):
            while self.heard().count(self.uri(own)) < count:
                await listed(self.agent)
                await anyio.sleep(PAUSE_S)

    async def begins(self, own: str) -> None:
        """Returns when it hears of this one at all: over HTTP, the stream of a session may open later."""
        with anyio.fail_after(LIMIT_S):
            while self.uri(own) not in self.heard():
                await self.touch(own)
                await listed(self.agent)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """What the server lists."""
    path = tmp_path / "listed"
    path.write_text(json.dumps(LISTED))
    return path


async def ledger(file: Path, *expected: str) -> list[str]:
    """What the server was asked, once all of `expected` is part of it."""
    path = file.with_name(file.name + ".ledger")
    with anyio.fail_after(LIMIT_S):
        while True:
            lines = path.read_text().splitlines() if path.exists() else []
            if not set(expected) - set(lines):
                return lines
            await anyio.sleep(0.01)


@pytest.mark.requirement("subscriptions-told")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("channel", CHANNELS, ids="-".join)
@pytest.mark.long
async def test_a_client_hears_of_what_it_subscribed_to(
    channel: tuple[str, Any], mode: str, file: Path, tmp_path: Path
) -> None:
    """By the URI that it used, a burst merged, and of nothing else; after it unsubscribed, of nothing."""
    async with agent_at(channel, tmp_path / "data", {"fx": watched(mode, file)}) as agent:
        await listed_resources(agent)
        ear = Ear(agent)
        await ear.open(ONE, LAST)
        await ear.begins(LAST)
        await ear.touch(*[ONE] * 20, TWO, LAST)
        await ear.until(ONE)
        await ear.touch(LAST)
        await ear.until(LAST, ear.heard().count(ear.uri(LAST)) + 1)
        assert ear.uri(TWO) not in ear.heard()
        assert 1 <= ear.heard().count(ear.uri(ONE)) < 20
        if agent.era == "handshake":
            assert (await agent.request("resources/unsubscribe", uri=ear.uri(ONE)))["result"] == {}
            before = ear.heard().count(ear.uri(ONE))
            await ear.touch(ONE, LAST)
            await ear.until(LAST, ear.heard().count(ear.uri(LAST)) + 1)
            assert ear.heard().count(ear.uri(ONE)) == before
        await ear.close()


async def listed_resources(agent: Agent) -> None:
    """Returns when the resources are listed."""
    with anyio.fail_after(LIMIT_S):
        while not (await agent.request("resources/list")).get("result", {}).get("resources"):
            await anyio.sleep(PAUSE_S)


@pytest.mark.requirement("subscriptions-told")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_is_passed_through_is_subscribed_to_by_its_own_uris(
    era: Era, mode: str, file: Path, tmp_path: Path
) -> None:
    """Both ways: what is asked for, and what is heard."""
    async with agent_at(("memory", era), tmp_path / "data", {"fx": watched(mode, file)}, "fx") as agent:
        assert agent.greeting["result"]["capabilities"]["resources"]["subscribe"] is True
        ear = Ear(agent, is_passed=True)
        await ear.open(ONE)
        await ear.touch(TWO, ONE)
        await ear.until(ONE)
        assert set(ear.heard()) == {ONE}


@pytest.fixture(scope="module")
async def busy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """A gateway in front of one server of each era, which many clients use."""
    directory = tmp_path_factory.mktemp("busy")
    (directory / "listed").write_text(json.dumps(LISTED))
    async with settled(directory / "data", {mode: watched(mode, directory / "listed") for mode in ERAS}) as gateway:
        yield gateway


SOME = st.frozensets(st.sampled_from(MEMOS[:-1]))


@pytest.mark.requirement("subscriptions-told")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    eras=st.tuples(st.sampled_from(ERAS), st.sampled_from(ERAS)),
    mode=st.sampled_from(ERAS),
    wanted=st.tuples(SOME, SOME),
    ended=SOME,
    changed=st.tuples(SOME, SOME),
)
async def test_nobody_hears_of_what_he_did_not_subscribe_to(
    busy: Gateway, eras: Any, mode: str, wanted: Any, ended: frozenset[str], changed: Any
) -> None:
    """Two clients with the same or other resources, of which one ends some: each hears of all of its own that change,
    and of no other."""
    async with in_memory(busy, eras[0]) as first, in_memory(busy, eras[1]) as second:
        ears = [Ear(agent, mode) for agent in (first, second)]
        for ear, owns in zip(ears, wanted, strict=True):
            await ear.open(*owns, LAST)
        present = list(wanted)
        for touched in changed:
            await ears[0].touch(*touched, LAST)
            for ear, owns in zip(ears, present, strict=True):
                await ear.until(LAST)
                assert set(ear.heard()) == {ear.uri(own) for own in (owns & touched) | {LAST}}
                ear.told.heard().clear()
            if eras[0] == "handshake":
                for own in ended:
                    await first.request("resources/unsubscribe", uri=ears[0].uri(own))
                present[0] -= ended
        for ear in ears:
            await ear.close()


@pytest.mark.requirement("subscriptions-refused")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_what_cannot_be_read_cannot_be_subscribed_to(era: Era, mode: str, file: Path, tmp_path: Path) -> None:
    """The same error; and where the server refuses a subscription, its own."""
    async with agent_at(("memory", era), tmp_path / "data", {"fx": watched(mode, file)}) as agent:

        async def subscribe(uri: str) -> dict[str, Any]:
            if era == "handshake":
                return await agent.request("resources/subscribe", uri=uri)
            wanted = {"toolsListChanged": True, "resourceSubscriptions": [shown(ONE), uri]}
            return await agent.request("subscriptions/listen", notifications=wanted)

        for unknown in ("mcpproxy://nobody/memo%3A%2F%2F1", "memo://unknown"):
            read = await agent.request("resources/read", uri=unknown)
            assert (await subscribe(unknown))["error"] == read["error"]
        refused = (await subscribe(shown("memo://refused")))["error"]
        if mode == "handshake":
            assert refused["code"] == -32077
        else:
            assert "does not tell when 'memo://refused' changes" in refused["message"]
        if era == "handshake":
            gone = await agent.request("resources/unsubscribe", uri="memo://unknown")
            assert "No resource" in gone["error"]["message"]
            assert (await agent.request("resources/unsubscribe", uri=shown(TWO)))["result"] == {}
        else:  # a stream that was refused leaves no subscription
            await ledger(file, "unsubscribe memo://0" if mode == "handshake" else "cancelled")


@pytest.mark.requirement("subscriptions-counted")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_server_is_asked_once_for_all_clients(era: Era, mode: str, file: Path, tmp_path: Path) -> None:
    """And told that nobody wants to hear any more when the last one has left, not before."""
    async with settled(tmp_path / "data", {"fx": watched(mode, file)}) as gateway:
        async with in_memory(gateway, era) as stays:
            ears = [Ear(stays)]
            await ears[0].open(ONE)
            async with in_memory(gateway, era) as leaves:
                ears.append(Ear(leaves))
                await ears[1].open(ONE)
                await ears[0].touch(ONE)
                for ear in ears:
                    await ear.until(ONE)
            await ears[0].touch(ONE)
            await ears[0].until(ONE, 2)
            begun = {"handshake": "subscribe memo://0", "modern": "listen memo://0"}[mode]
            assert await ledger(file) == [begun]
        ended = {"handshake": "unsubscribe memo://0", "modern": "cancelled"}[mode]
        assert await ledger(file, ended) == [begun, ended]


@pytest.mark.requirement("subscriptions-renewed")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_subscription_outlives_a_connection(era: Era, mode: str, file: Path, tmp_path: Path) -> None:
    """The client hears once that the resource may have changed in the gap, and of every change afterwards."""
    async with agent_at(("memory", era), tmp_path / "data", {"fx": watched(mode, file)}) as agent:
        ear = Ear(agent)
        await ear.open(ONE)
        for ending in ("die", "end") if mode == "modern" else ("die",):
            before = len(ear.heard())
            await agent.call("call_tool_write", name=f"fx:{ending}", args={})
            await ear.until(ONE, before + 1)
            assert len(ear.heard()) == before + 1
            await ear.touch(ONE)
            await ear.until(ONE, before + 2)


@pytest.mark.requirement("subscriptions-renewed")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_what_a_server_does_not_take_on_its_new_connection_is_tried_again(
    era: Era, mode: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it does; the client hears then that the resource may have changed, and of every change afterwards."""
    monkeypatch.setattr(subscriptions, "RENEW_PAUSE_S", 0.02)
    refusing = file.with_name(file.name + ".refusing")
    async with agent_at(("memory", era), tmp_path / "data", {"fx": watched(mode, file)}) as agent:
        ear = Ear(agent)
        await ear.open(ONE)
        refusing.touch()
        await agent.call("call_tool_write", name="fx:die", args={})
        await refused_twice(file, agent)
        assert ear.heard() == []
        refusing.unlink()
        await ear.until(ONE)
        await ear.touch(ONE)
        await ear.until(ONE, 2)


async def refused_twice(file: Path, agent: Agent) -> None:
    """Returns when the server has refused two attempts on its present connection."""
    with anyio.fail_after(LIMIT_S):
        while sum(line.startswith("refused") for line in await ledger(file)) < 2:
            await listed(agent)


@pytest.mark.requirement("subscriptions-shared")
async def test_at_a_server_that_knows_each_client_subscriptions_go_over_the_shared_connection(
    file: Path, tmp_path: Path
) -> None:
    """Which stays whoever leaves; what is said on a client's own connection is heard by nobody else."""
    entry = watched("handshake", file, connection="per_client")
    async with (
        settled(tmp_path / "data", {"fx": entry}) as gateway,
        in_memory(gateway, "handshake") as own,
        in_memory(gateway, "modern") as shares,
    ):
        ears = [Ear(own), Ear(shares)]
        for ear in ears:
            await ear.open(ONE)
        await ears[0].touch(ONE)  # on its own connection, on which nothing is subscribed to
        await ears[1].touch(ONE)
        for ear in ears:
            await ear.until(ONE)
            assert ear.heard() == [shown(ONE)]
        assert await ledger(file) == ["subscribe memo://0"]


@pytest.mark.requirement("subscriptions-renewed")
@pytest.mark.parametrize("mode", ERAS)
async def test_a_stream_may_name_resources_of_a_server_that_is_away(mode: str, file: Path, tmp_path: Path) -> None:
    """Known from an earlier day, not started now: it is subscribed to as soon as it is there."""
    servers = {"fx": watched(mode, file)}
    async with settled(tmp_path / "data", servers):
        pass
    file.rename(file.with_name("away"))
    async with opened_gateway(tmp_path / "data", servers) as gateway:
        gateway.start_upstreams()
        assert await gateway.wait_settled(LIMIT_S)
        async with in_memory(gateway, "modern") as agent:
            ear = Ear(agent)
            await ear.open(ONE)
            file.with_name("away").rename(file)
            gateway.upstreams.fleet.retry("fx")
            await ear.until(ONE)


@pytest.mark.requirement("subscriptions-withheld")
@pytest.mark.parametrize("is_gone", [False, True], ids=["withheld", "gone"])
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_nothing_is_heard_of_what_may_no_longer_be_read(
    era: Era, mode: str, is_gone: bool, file: Path, tmp_path: Path
) -> None:
    """Of the others all is; approved, it is heard of again."""
    async with settled(tmp_path / "data", {"fx": watched(mode, file)}) as gateway, in_memory(gateway, era) as agent:
        ear = Ear(agent)
        await ear.open(ONE, LAST)
        first, *others = LISTED["resources"]
        file.write_text(json.dumps(LISTED | {"resources": others if is_gone else [first | {"title": "x"}, *others]}))
        before = gateway.catalog.snapshot
        await agent.call("call_tool_write", name="fx:poke", args={})
        with anyio.fail_after(LIMIT_S):
            while gateway.catalog.snapshot is before:
                await anyio.sleep(0.01)
        await ear.touch(ONE, LAST)
        await ear.until(LAST)
        assert shown(ONE) not in ear.heard()
        if not is_gone:
            (waiting,) = await gateway.admin.approvals.explain(gateway.admin.approvals.withheld())
            await gateway.admin.approvals.approve(
                {"fx:resources:memo://0": waiting.withheld.record.change_hash}, "tester"
            )
            await ear.touch(ONE)
            await ear.until(ONE)


@pytest.mark.requirement("subscriptions-bounded")
@pytest.mark.parametrize("era", ERAS)
async def test_a_client_has_so_many_subscriptions_and_no_more(era: Era, file: Path, tmp_path: Path) -> None:
    """One more is refused by name of the limit; one that ended makes room."""
    async with agent_at(("memory", era), tmp_path / "data", {"fx": watched("handshake", file)}) as agent:
        uris = [shown(f"memo://t/{number}").replace("%2F7", "/7") for number in range(PER_CLIENT + 1)]
        if era == "modern":
            wanted = {"resourceSubscriptions": uris}
            error = (await agent.request("subscriptions/listen", notifications=wanted))["error"]
        else:
            for uri in uris[:-1]:
                assert (await agent.request("resources/subscribe", uri=uri))["result"] == {}
            error = (await agent.request("resources/subscribe", uri=uris[-1]))["error"]
            await agent.request("resources/unsubscribe", uri=uris[0])
            assert (await agent.request("resources/subscribe", uri=uris[-1]))["result"] == {}
        assert error["data"]["code"] == "too_many_subscriptions"
        assert str(PER_CLIENT) in error["message"]


@pytest.mark.requirement("subscriptions-bounded")
async def test_a_server_has_so_many_subscriptions_and_no_more(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On behalf of all clients together; what is subscribed to already, others may subscribe to."""
    monkeypatch.setattr(subscriptions, "PER_SERVER", 2)
    async with (
        settled(tmp_path / "data", {"fx": watched("handshake", file)}) as gateway,
        in_memory(gateway, "handshake") as first,
        in_memory(gateway, "handshake") as second,
    ):
        for uri in (ONE, TWO):
            assert (await first.request("resources/subscribe", uri=shown(uri)))["result"] == {}
        assert (await second.request("resources/subscribe", uri=shown(TWO)))["result"] == {}
        error = (await second.request("resources/subscribe", uri=shown(LAST)))["error"]
        assert error["data"]["code"] == "too_many_subscriptions"
        assert "2 resources of server 'fx'" in error["message"]


@pytest.mark.requirement("subscriptions-told")
@pytest.mark.parametrize("mode", ERAS)
async def test_a_change_of_a_part_is_told_of_the_whole(mode: str, file: Path, tmp_path: Path) -> None:
    """A server may name the very part; the client hears of what it knows."""
    async with agent_at(("memory", "handshake"), tmp_path / "data", {"fx": watched(mode, file)}) as agent:
        ear = Ear(agent)
        await ear.open(ONE, TWO)
        await agent.call("call_tool_write", name="fx:touch", args={"uris": [ONE], "part": "/a/b"})
        await ear.until(ONE)
        assert ear.heard() == [shown(ONE)]


@pytest.mark.requirement("subscriptions-claimed")
@pytest.mark.parametrize("era", ERAS)
async def test_subscriptions_are_claimed_where_a_server_has_them(era: Era, file: Path, tmp_path: Path) -> None:
    """Where none has, the method is unknown, and a stream agrees to no resource; where another one has, it is named."""
    deaf = {"deaf": watched("deaf", file)}
    wanted = {"resourceSubscriptions": [shown(ONE, "deaf")], "toolsListChanged": True}
    async with settled(tmp_path / "deaf", deaf) as gateway, in_memory(gateway, era) as agent:
        assert agent.greeting["result"]["capabilities"]["resources"]["subscribe"] is False
        if era == "modern":
            told = Announcements(agent)
            await told.subscribe(wanted)  # type: ignore[arg-type]
            (acknowledged,) = told.heard()
            assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
        else:
            for method in ("resources/subscribe", "resources/unsubscribe"):
                assert (await agent.request(method, uri=shown(ONE, "deaf")))["error"]["code"] == -32601
    both = deaf | {"fx": watched("modern", file)}
    async with settled(tmp_path / "both", both) as gateway, in_memory(gateway, era) as agent:
        assert agent.greeting["result"]["capabilities"]["resources"]["subscribe"] is True
        if era == "modern":
            answer = await agent.request("subscriptions/listen", notifications=wanted)
        else:
            answer = await agent.request("resources/subscribe", uri=shown(ONE, "deaf"))
        assert "'deaf' does not tell when its resources change" in answer["error"]["message"]


@pytest.mark.requirement("subscriptions-principals")
@pytest.mark.parametrize("era", ERAS)
async def test_two_principals_hear_of_their_own_servers_alone(era: Era, tmp_path: Path) -> None:
    """The same URI on two servers, each reached by one of them."""
    for name in ("left", "right"):
        (tmp_path / name).write_text(json.dumps(LISTED))
    servers = {name: watched("modern", tmp_path / name) for name in ("left", "right")}
    async with settled(tmp_path / "data", servers) as gateway, AsyncExitStack() as stack:
        base = await stack.enter_async_context(served(gateway, token="own"))
        ears: dict[str, Ear] = {}
        for name in servers:
            secret = (await gateway.admin.agent_tokens.create(name, Scope((name,), "write"))).secret
            headers = {"authorization": f"Bearer {secret}"}
            ears[name] = Ear(await stack.enter_async_context(over_http(base, era, headers)), name)
            await ears[name].open(ONE, LAST)
        for name, ear in ears.items():
            await ear.begins(LAST)
            other = "right" if name == "left" else "left"
            if era == "handshake":
                answer = await ear.agent.request("resources/subscribe", uri=shown(ONE, other))
            else:
                wanted = {"resourceSubscriptions": [shown(ONE, other)]}
                answer = await ear.agent.request("subscriptions/listen", notifications=wanted)
            read = await ear.agent.request("resources/read", uri=shown(ONE, other))
            assert answer["error"] == read["error"]
        await ears["left"].touch(ONE)
        await ears["left"].until(ONE)
        count = ears["right"].heard().count(shown(LAST, "right"))
        await ears["right"].touch(LAST)
        await ears["right"].until(LAST, count + 1)
        for name, ear in ears.items():
            assert {uri.split("/")[2] for uri in ear.heard()} == {name}
            await ear.close()
        assert shown(ONE, "right") not in ears["right"].heard()


@pytest.mark.requirement("subscriptions-recorded")
async def test_each_subscription_is_on_record(file: Path, tmp_path: Path) -> None:
    """Its beginning, its end, and what was refused."""
    async with (
        settled(tmp_path / "data", {"fx": watched("handshake", file)}) as gateway,
        in_memory(gateway, "handshake") as agent,
    ):
        await agent.request("resources/subscribe", uri=shown(ONE))
        await agent.request("resources/subscribe", uri=shown("memo://refused"))
        await agent.request("resources/unsubscribe", uri=shown(ONE))
        found: list[tuple[str, str]] = []
        with anyio.fail_after(LIMIT_S):
            while len(found) < 3:
                page = await gateway.catalog.activity_page(ActivityFilter(), 50)
                records = [each.activity for each in page if "ubscribe" in str(each.activity.detail.get("method"))]
                found = [(each.subject, each.outcome) for each in records]
    assert sorted(found) == [
        ("fx:resources/subscribe:memo://0", "ok"),
        ("fx:resources/subscribe:memo://refused", "upstream_failed"),
        ("fx:resources/unsubscribe:memo://0", "ok"),
    ]
