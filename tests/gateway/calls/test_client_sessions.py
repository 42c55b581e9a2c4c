"""A call's time on its client's own connection, and what clients are told there."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway_fakes import Notebook, config, definition, record_of
from msgspec.structs import replace

from smart_mcp_proxy.errors import RefusedError, RequestError, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.gateway.calls.client_sessions import Clients, Sender
from smart_mcp_proxy.models import ClientLine, Era
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerLimits
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import secrets_hidden
from smart_mcp_proxy.upstream import Fleet, OwnConnection, ToolListing
from smart_mcp_proxy.upstream.per_client import LISTINGS, ListKind
from smart_mcp_proxy.upstream.protocol.server_requests import Conversation
from smart_mcp_proxy.upstream.protocol.session import build_lost_error

pytestmark = pytest.mark.anyio

TOOL = definition("read")


class Client:
    """A client, and the way back to it; nobody asks it anything here."""

    client = "a"
    capabilities: Mapping[str, Any] = {}

    async def ask(self, method: str, params: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        raise AssertionError(method)

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        raise AssertionError(method)

    async def answer(self, method: str, params: Mapping[str, Any], line: ClientLine | None) -> Mapping[str, Any]:
        raise AssertionError(method)

    async def hear(self, method: str, params: Mapping[str, Any], line: ClientLine | None) -> None:
        raise AssertionError(method)


class Lister:
    """A session whose server lists one tool when it is let, and says how long a call may take."""

    era: Era = "handshake"
    protocol_version, server_info, run = "2025-11-25", "fake", ""
    capabilities: Mapping[str, Any] = {"tools": {}}

    def __init__(self) -> None:
        self.may_list = asyncio.Event()
        self.call_s = 0.0
        self.listings = 0

    async def request(self, method: str, params: Mapping[str, Any], *, timeout_s: float, **_: Any) -> RawResult:
        if method == "tools/call":
            self.call_s = timeout_s
            return RawResult(b"{}")
        await self.may_list.wait()
        self.listings += 1
        return RawResult(json.dumps({"tools": [TOOL]}).encode())

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        raise AssertionError(method)

    async def close(self) -> None:
        raise AssertionError("nobody closes it")

    async def wait_closed(self) -> UpstreamError:
        return build_lost_error("alpha", "ended", was_sent=True)


def connected_to(link: Lister, kind: type[OwnConnection] = OwnConnection) -> OwnConnection:
    settings = replace(config("alpha"), limits=ServerLimits(list_s=20, call_s=20))
    return kind(settings, link, Conversation("alpha", Client()), lambda: 0.0)


async def test_the_look_at_what_a_server_lists_ends_with_the_time_of_the_call_and_nothing_was_sent() -> None:
    """However long the server may take for a list otherwise."""
    sender = Sender(connected_to(Lister()), Client(), 0.05)
    with anyio.fail_after(20), pytest.raises(UpstreamTimeoutError, match=r"'alpha' did not .* within 0\.05 s") as late:
        await sender.confirm(record_of(TOOL))
    assert late.value.delivery == "not_sent"


async def test_a_call_has_the_time_that_the_look_at_the_list_has_left_it() -> None:
    """Both count against one deadline."""
    link = Lister()
    link.may_list.set()
    sender = Sender(connected_to(link), Client(), 20.0)
    await sender.request("tools/call", {})
    at_once_s = link.call_s
    await sender.confirm(record_of(TOOL))
    await sender.request("tools/call", {})
    assert link.call_s < at_once_s


async def test_a_list_that_changes_as_soon_as_it_was_read_is_not_looked_at_for_ever() -> None:
    """The call fails long before its time is over."""

    class Restless(OwnConnection):
        """Hears of a change while the list is compared with what was approved."""

        async def fetch_listing(self, kind: ListKind) -> ToolListing:
            listing = await super().fetch_listing(kind)
            self.forget_lists()
            return listing

    link = Lister()
    link.may_list.set()
    sender = Sender(connected_to(link, Restless), Client(), 20.0)
    with anyio.fail_after(10), pytest.raises(UpstreamError, match="does not hold still") as given_up:
        await sender.confirm(record_of(TOOL))
    assert link.listings == LISTINGS and given_up.value.delivery == "not_sent"


def fleet_of_none() -> Fleet:
    """A fleet that opens no session."""
    dialer: Any = None
    return Fleet(environ={}, on_change=lambda status: None, on_tools_changed=lambda name: None, open_session=dialer)


def asked_of(params: dict[str, Any], declared: dict[str, Any], method: str = "elicitation/create") -> Any:
    """A question of server `alpha` as its client gets it."""
    fleet = fleet_of_none()
    clients = Clients(fleet, Notebook(), lambda path, principal: None, Settings(data_dir=Path("/")))  # type: ignore[arg-type]
    return clients.prepare_question("alpha", method, params, declared)


def test_the_words_of_a_question_hide_what_its_server_was_trusted_with() -> None:
    """What a sign-in needs in its address stays: every browser sees it."""
    address = "https://login.example/start?client_id=geheim-1234"
    params = {"mode": "url", "message": "Sign in with geheim-1234.", "url": address, "elicitationId": "1"}
    with secrets_hidden(["geheim-1234"]):
        shown = asked_of(params, {"elicitation": {"url": {}}})
    assert "geheim" not in shown["message"] and "[hidden]" in shown["message"]
    assert shown["url"] == address


def test_a_question_that_cannot_be_asked_without_a_secret_is_not_asked() -> None:
    """The server is told why; and one that nobody could read is told so too."""
    params = {"mode": "url", "message": "Sign in.", "url": "https://a.example/?key=geheim-1234", "elicitationId": "1"}
    with secrets_hidden(["geheim-1234"]), pytest.raises(RefusedError, match="an address") as refused:
        asked_of(params, {"elicitation": {"url": {}}})
    assert refused.value.error_code == "secret_shown" and "geheim" not in str(refused.value)
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    with pytest.raises(RequestError, match="nested too deeply"):
        asked_of({"messages": deep}, {"sampling": {}}, "sampling/createMessage")


def test_a_question_of_one_kind_shows_no_secret_where_another_kind_has_to() -> None:
    """An address beside a form, and a form beside what a model is asked."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    form = {"message": "Who?", "requestedSchema": schema, "url": "https://a.example/geheim-1234"}
    sample = {"messages": [], "maxTokens": 5, "requestedSchema": {"enum": ["geheim-1234"]}}
    with secrets_hidden(["geheim-1234"]):
        shown = asked_of(form, {"elicitation": {}}), asked_of(sample, {"sampling": {}}, "sampling/createMessage")
    assert "geheim" not in str(shown)
    assert shown[0]["requestedSchema"] == schema


def test_what_a_server_tells_its_client_is_cleaned_and_hides_what_it_was_trusted_with() -> None:
    """Like a result, names included; a secret that is only whole once it is cleaned, too."""
    fleet = fleet_of_none()
    clients = Clients(fleet, Notebook(), lambda path, principal: None, Settings(data_dir=Path("/")))  # type: ignore[arg-type]
    plain = Clients(fleet, Notebook(), lambda path, principal: None, Settings(data_dir=Path("/"), clean_results=False))  # type: ignore[arg-type]
    said = {"level": "info", "data": {"red": "\x1b[31mred", "geheim-1234": ["geh\x1b[0meim-1234", 1.5]}}
    with secrets_hidden(["geheim-1234"]):
        assert clients.shape_notification(said) == {
            "level": "info",
            "data": {"red": "red", "[hidden]": ["[hidden]", 1.5]},
        }
        assert plain.shape_notification({"data": "\x1b[31m geheim-1234"}) == {"data": "\x1b[31m [hidden]"}
