"""Prompts and resources: what a failed listing leaves behind, what a URI leads to, and what is asked of a server."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway_fakes import FakeFleet, FakeUpstream, HandClock, Notebook, config, definition

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import ProxyError, QuarantinedError, UpstreamError
from smart_mcp_proxy.gateway.calls.admission import AdmissionControl
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.calls.requests import ContentRequest, ContentRequests
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.indexing.list_sync import CONTENTS, ListSync, Pace
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ContentKind, ServerState, ToolKey
from smart_mcp_proxy.names import shelf
from smart_mcp_proxy.upstream import ToolListing
from smart_mcp_proxy.upstream.protocol.session import rpc_error

pytestmark = pytest.mark.anyio

PLAN = {"uri": "file:///srv/plan", "name": "plan"}
KEYS = {"uri": "file:///srv/secret/keys", "name": "keys"}
ANY = {"uriTemplate": "file:///srv/{path}", "name": "any"}
BROKEN = UpstreamError("It said no.", delivery="executed")
LOST = UpstreamError("It went away.", delivery="unknown")


class ContentSetup:
    """The server alpha, its shelves, and who asks for what is on them."""

    def __init__(self, catalog: Catalog, *, is_cleaned: bool = False) -> None:
        self.catalog = catalog
        self.alpha = FakeUpstream("alpha")
        fleet: Any = FakeFleet(self.alpha)
        self.lists = ListState(fleet, catalog, Changes())
        pace = Pace(merge_s=0, poll_s=3600, retry_s=3600)
        self.sync = ListSync(self.lists, fleet, catalog, CONTENTS, self._nothing, review=self._no_policy, pace=pace)
        notebook: Any = Notebook()
        self.admission = AdmissionControl()
        limits = CallLimits(arguments="none", is_cleaned=is_cleaned)
        self.asks = ContentRequests(
            RequestPath(fleet, notebook, limits, HandClock(), admission=self.admission), self.lists
        )
        visible = CatalogView(catalog, {"alpha": config("alpha")}, lambda name, n, *, allowed: [])
        self.contents = Contents(catalog, visible, 60, "alpha")

    async def _no_policy(self, server: str, definitions: Sequence[Any]) -> None:
        return None

    async def _nothing(self) -> None:
        return None

    async def listed(self, **contents: Any) -> None:
        """Alpha lists these, one after another, and is heard."""
        self.alpha.contents = contents
        self.sync.status_changed(self.alpha.move(ServerState.CONNECTING))
        self.sync.status_changed(self.alpha.move(ServerState.READY))
        with anyio.fail_after(10):
            await self.lists.wait_listed("alpha")

    def seen(self, kind: ContentKind) -> set[str]:
        return {key.tool for key in self.catalog.snapshot.by_key if key.server == shelf("alpha", kind)}

    async def read(self, uri: str) -> dict[str, Any]:
        target = self.contents.resource(uri)
        ask = ContentRequest("resources/read", target, {"uri": target.name}, {}, Caller("ann", {}, None, "s1"))
        answer: dict[str, Any] = json.loads((await self.asks.ask(ask)).text)
        return answer


@asynccontextmanager
async def opened(directory: Path, **options: Any) -> AsyncIterator[ContentSetup]:
    async with Catalog.open(directory, name_limit=60) as catalog:
        setup = ContentSetup(catalog, **options)
        try:
            yield setup
        finally:
            await setup.sync.close()


async def test_a_kind_that_cannot_be_listed_leaves_the_others(tmp_path: Path) -> None:
    """Whichever it is; its own last list stays."""
    async with opened(tmp_path) as setup:
        await setup.listed(prompts=[{"name": "greet"}], resources=[PLAN])
        await setup.listed(prompts=BROKEN, resources=[], templates=[ANY])
        assert setup.seen("prompts") == {"greet"}
        assert setup.seen("resources") == set()
        assert not setup.catalog.snapshot.withheld.keys() - {ToolKey("alpha:templates", ANY["uriTemplate"])}


@pytest.mark.long  # a third of a second of processor time
async def test_a_list_of_a_thousand_is_one_page(tmp_path: Path) -> None:
    """Clients that read the first page alone see it whole; one more begins a second page."""
    for count, more in ((1_000, []), (1_001, ["greet-1000"])):
        async with opened(tmp_path / str(count)) as setup:
            await setup.listed(prompts=[{"name": f"greet-{number:04}"} for number in range(count)])
            page, further = setup.contents.page("prompts", None)
            assert len(page) == 1_000
            assert bool(further) is bool(more)
            rest = setup.contents.page("prompts", further)[0] if further else []
            assert [item["name"] for item in rest] == more


async def test_kinds_that_a_server_lacks_are_stored_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction each would cost more than all else that a server's start takes."""
    stored: list[set[str]] = []
    store = Catalog._store

    def noted(catalog: Catalog, heard: Any, now_s: float) -> None:
        stored.append(set(heard))
        store(catalog, heard, now_s)

    monkeypatch.setattr(Catalog, "_store", noted)
    async with opened(tmp_path) as setup:
        has_come = threading.Event()
        busy = asyncio.create_task(setup.catalog._database.run(has_come.wait))
        await asyncio.sleep(0)
        setup.sync.status_changed(setup.alpha.move(ServerState.READY))
        with anyio.fail_after(10):
            while len(setup.catalog._waiting) < len(CONTENTS):
                await anyio.lowlevel.checkpoint()
        has_come.set()
        await busy
        with anyio.fail_after(10):
            await setup.lists.wait_listed("alpha")
    assert stored == [{shelf("alpha", kind) for kind in ("prompts", "resources", "templates", "skills")}]


async def test_a_server_is_asked_for_one_kind_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes its time for each would be late with the last of them."""
    asked: list[tuple[str, str]] = []

    async def slow(upstream: FakeUpstream, kind: ContentKind) -> ToolListing:
        asked.append(("begin", kind))
        for _ in range(5):
            await asyncio.sleep(0)
        asked.append(("end", kind))
        return ToolListing()

    monkeypatch.setattr(FakeUpstream, "list_contents", slow)
    async with opened(tmp_path) as setup:
        await setup.listed()
    assert asked == [(what, kind.name) for kind in CONTENTS for what in ("begin", "end")]


async def test_a_first_list_that_fails_is_not_agreed_to_later(tmp_path: Path) -> None:
    """A server whose tools are known cannot choose a later day for what is trusted unseen."""
    async with opened(tmp_path) as setup:
        await setup.catalog.sync("alpha", [definition("look")])
        await setup.listed(prompts=[{"name": "greet"}], resources=BROKEN)
        await setup.listed(prompts=[{"name": "greet"}], resources=[PLAN])
        assert setup.seen("prompts") == {"greet"}
        assert setup.seen("resources") == set()
        assert ToolKey("alpha:resources", PLAN["uri"]) in setup.catalog.snapshot.withheld


@pytest.mark.parametrize("failure", [BROKEN, LOST], ids=["refused", "lost"])
async def test_a_first_list_that_fails_before_the_tools_are_known_is_not_agreed_to_after_them(
    tmp_path: Path, failure: UpstreamError
) -> None:
    """Otherwise a server gains a list that is trusted unseen by failing the first one in time."""
    async with opened(tmp_path) as setup:
        await setup.listed(resources=failure)
        await setup.catalog.sync("alpha", [definition("look")])
        await setup.listed(resources=[PLAN])
        assert setup.seen("resources") == set()
        assert ToolKey("alpha:resources", PLAN["uri"]) in setup.catalog.snapshot.withheld


async def test_a_first_list_that_a_server_refuses_is_its_first_one_even_if_the_gateway_ends_at_once(
    tmp_path: Path,
) -> None:
    """It answered, and what it answered is on record."""
    async with opened(tmp_path) as setup:
        await setup.listed(resources=BROKEN)
    async with opened(tmp_path) as setup:
        await setup.catalog.sync("alpha", [definition("look")])
        await setup.listed(resources=[PLAN])
        assert setup.seen("resources") == set()


async def test_a_connection_that_breaks_before_anything_is_known_costs_no_first_list(tmp_path: Path) -> None:
    """The next one is where the server is heard first, with its tools."""
    async with opened(tmp_path) as setup:
        await setup.listed(prompts=[{"name": "greet"}], resources=LOST)
        await setup.listed(prompts=[{"name": "greet"}], resources=[PLAN])
        assert setup.seen("resources") == {PLAN["uri"]}


async def test_the_first_lists_of_a_known_server_that_was_never_asked_are_trusted(tmp_path: Path) -> None:
    """As in a catalog that is older than its shelves."""
    async with opened(tmp_path) as setup:
        await setup.catalog.sync("alpha", [definition("look")])
        await setup.listed(resources=[PLAN])
        assert setup.seen("resources") == {PLAN["uri"]}


async def test_what_is_forgotten_is_not_taken_for_listed(tmp_path: Path) -> None:
    """A server of the same name that comes later is another one."""
    async with opened(tmp_path) as setup:
        await setup.listed(resources=[PLAN])
        assert repr(setup.lists) == "<ListState, 1 servers fresh>"
        setup.sync.forget(())
        assert repr(setup.lists) == "<ListState, 0 servers fresh>"


async def test_a_first_list_is_waited_for_until_it_is_there_or_has_failed_and_no_longer_than_allowed(
    tmp_path: Path,
) -> None:
    """A server that connects for ever, or not at all, is not waited for any longer."""
    async with opened(tmp_path) as setup:
        setup.alpha.contents = {"resources": [PLAN]}
        setup.sync.status_changed(setup.alpha.move(ServerState.CONNECTING))
        with anyio.fail_after(10):
            await setup.lists.wait_known(["alpha"], "resources", limit_s=0)
            assert setup.seen("resources") == set()
            waiting = asyncio.ensure_future(setup.lists.wait_known(["alpha"], "resources", limit_s=3600))
            setup.sync.status_changed(setup.alpha.move(ServerState.READY))
            await waiting
            assert setup.seen("resources") == {PLAN["uri"]}
    async with opened(tmp_path / "other") as setup:
        setup.sync.status_changed(setup.alpha.move(ServerState.CONNECTING))
        with anyio.fail_after(10):
            waiting = asyncio.ensure_future(setup.lists.wait_known(["alpha"], "resources", limit_s=3600))
            setup.sync.status_changed(setup.alpha.move(ServerState.ERROR))
            await waiting


SPELLINGS = (
    KEYS["uri"],
    "FILE:///srv/secret/keys",
    "file://LOCALHOST/srv/secret/keys",
    "file:///srv/secret/%6beys",
    "file:///srv/secret%2Fkeys",
    "file:///srv/./secret/keys",
    "file:///srv/x/../secret/keys",
    "file:///srv/x%2F..%2Fsecret/keys",
    "file:///srv//secret/keys",
    "file:///srv/secret/keys/",
    "file:///srv/secret/keys#top",
)


@pytest.mark.parametrize("templates", [[], [ANY]], ids=["unlisted", "templated"])
@pytest.mark.parametrize("uri", SPELLINGS)
async def test_what_is_withheld_is_so_under_every_spelling(uri: str, templates: list[Any], tmp_path: Path) -> None:
    """A server may take them all for one; what it lists beside it can be read."""
    async with opened(tmp_path) as setup:
        await setup.listed(resources=[PLAN], templates=templates)
        await setup.listed(resources=[PLAN, KEYS], templates=templates)
        with pytest.raises(QuarantinedError, match="new and waits"):
            await setup.read(uri)
        assert setup.alpha.sent == []
        await setup.read(PLAN["uri"])
        if templates:
            await setup.read("file:///srv/other")
        else:
            with pytest.raises(QuarantinedError, match="does not list this resource"):
                await setup.read("file:///srv/other")
        assert len(setup.alpha.sent) == 1 + len(templates)


async def test_a_withheld_template_is_not_read_through_a_wider_one(tmp_path: Path) -> None:
    """Nor is a URI of it that is spelled otherwise."""
    async with opened(tmp_path) as setup:
        await setup.listed(templates=[ANY])
        await setup.listed(templates=[ANY, {"uriTemplate": "file:///srv/secret/{name}", "name": "narrow"}])
        for uri in ("file:///srv/secret/keys", "file:///srv/x/../%73ecret/keys"):
            with pytest.raises(QuarantinedError):
                await setup.read(uri)
        await setup.read("file:///srv/other")
        assert [params["uri"] for _, params in setup.alpha.sent] == ["file:///srv/other"]


async def test_without_anything_withheld_an_unlisted_uri_is_read(tmp_path: Path) -> None:
    """Servers need not list all they have."""
    async with opened(tmp_path) as setup:
        await setup.listed(resources=[PLAN])
        await setup.read("file:///srv/other")
        assert len(setup.alpha.sent) == 1


@pytest.mark.parametrize("uri", [PLAN["uri"], "file:///srv/other", "file:///elsewhere"])
async def test_what_is_withheld_while_a_request_waited_is_not_asked_for(uri: str, tmp_path: Path) -> None:
    """Listed, of a template, or neither."""
    async with opened(tmp_path) as setup:
        await setup.listed(resources=[PLAN], templates=[ANY])
        setup.alpha.move(ServerState.CONNECTING)
        with anyio.fail_after(10):
            reading = asyncio.ensure_future(setup.read(uri))
            await setup.alpha.awaited.wait()
            await setup.catalog.block(ToolKey("alpha:resources", PLAN["uri"]), "tester")
            await setup.catalog.block(ToolKey("alpha:templates", ANY["uriTemplate"]), "tester")
            await setup.catalog.refresh()
            setup.alpha.move(ServerState.READY)
            with pytest.raises(ProxyError) as caught:
                await reading
        assert (caught.value.error_code, caught.value.delivery) == ("quarantined", "not_sent")
        assert setup.alpha.sent == []


async def test_what_changed_or_left_while_a_request_waited_is_not_asked_for(tmp_path: Path) -> None:
    """It was found by a definition that is not the present one."""
    for number, (later, code) in enumerate((([PLAN | {"name": "b"}], "quarantined"), ([], "quarantined"))):
        async with opened(tmp_path / str(number)) as setup:
            await setup.listed(resources=[PLAN])
            setup.alpha.move(ServerState.CONNECTING)
            with anyio.fail_after(10):
                reading = asyncio.ensure_future(setup.read(PLAN["uri"]))
                await setup.alpha.awaited.wait()
                await setup.listed(resources=later)
                with pytest.raises(ProxyError) as caught:
                    await reading
            assert caught.value.error_code == code
            assert setup.alpha.sent == []


async def test_answers_are_cleaned_where_the_settings_ask_for_it(tmp_path: Path) -> None:
    """Of any length; a clean one, and every one without the setting, passes byte for byte."""
    for text in ("\x1b[31mred", "\x1b[31mred" + "d" * 70_000):
        for is_cleaned in (True, False):
            async with opened(tmp_path, is_cleaned=is_cleaned) as setup:
                await setup.listed(resources=[PLAN])
                setup.alpha.answer = json.dumps({"contents": [{"uri": PLAN["uri"], "text": text}]}).encode()
                shown = (await setup.read(PLAN["uri"]))["contents"][0]["text"]
                assert shown == (text.removeprefix("\x1b[31m") if is_cleaned else text)


@pytest.mark.parametrize("named", [PLAN["uri"], "plan://another"])
async def test_the_error_of_a_resource_names_it_as_it_was_asked_for(tmp_path: Path, named: str) -> None:
    """A URI of the server's own would lead nowhere; what names something else stays."""
    async with opened(tmp_path) as setup:
        await setup.listed(resources=[PLAN])
        setup.alpha.answer = rpc_error("alpha", "resources/read", -32602, "not found", {"uri": named, "n": 1})
        target = setup.contents.resource(PLAN["uri"])
        ask = ContentRequest(
            "resources/read", target, {"uri": target.name}, {}, Caller("ann", {}, None), uri="mcpproxy://alpha/x"
        )
        with pytest.raises(UpstreamError) as caught:
            await setup.asks.ask(ask)
        expected = "mcpproxy://alpha/x" if named == PLAN["uri"] else named
        assert caught.value.answer is not None
        assert caught.value.answer.data == {"uri": expected, "n": 1}
        assert (caught.value.data or {})["rpc_data"] == {"uri": expected, "n": 1}
