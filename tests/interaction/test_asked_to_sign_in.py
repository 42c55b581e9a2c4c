"""A call of somebody who is not signed in: their client shows the link, and the call goes on when they have."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from agents import Era
from askable_agents import Askable, AskableHttp, greeted
from openid_fakes import consent
from plain_http import plain_client
from sign_in_fakes import Guarded, guarded
from test_people_sign_in import world

pytestmark = [pytest.mark.anyio, pytest.mark.long]

BY_LINK = {"elicitation": {"url": {}}}
ERAS: tuple[Era, ...] = ("handshake", "modern")


class Asked:
    """Ann's client, and her browser."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.links: list[str] = []
        self.action: Literal["accept", "decline"] = "accept"
        self.tasks: list[asyncio.Task[Any]] = []
        self.agent: Askable | None = None

    def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Says that the link is opened, which takes longer than the answer."""
        assert (method, params["mode"]) == ("elicitation/create", "url")
        self.links.append(params["url"])
        if self.action == "accept":
            self.tasks.append(asyncio.create_task(consent(params["url"])))
        return {"result": {"action": self.action}}

    async def call(self) -> dict[str, Any]:
        assert self.agent is not None
        arguments = {"name": "web:whoami", "args": {}}
        answer = await self.agent.answered("tools/call", name="call_tool_write", arguments=arguments)
        result: dict[str, Any] = answer["result"]
        return result


@asynccontextmanager
async def asked(tmp_path: Path, server: Guarded, era: Era, able: Mapping[str, Any]) -> AsyncIterator[Asked]:
    """Ann at her client, signed in at the gateway and at no server."""
    others = {"web": {"url": server.url, "oauth": {"per_user": True}}}
    async with world(tmp_path, others=others) as here:
        held, ann = await here.sign_in(), Asked(here.base)
        headers = {"authorization": f"Bearer {held.access_token}"}
        async with (
            plain_client(timeout=60, headers=headers) as client,
            greeted(AskableHttp(era, f"{here.base}/mcp", client), able, ann.answer) as ann.agent,
        ):
            yield ann
            await asyncio.gather(*ann.tasks)


@pytest.mark.parametrize("era", ERAS)
async def test_the_call_goes_on_once_the_person_has_signed_in(tmp_path: Path, era: Era) -> None:
    """The link is the gateway's own; the next call asks nothing."""
    async with guarded() as server, asked(tmp_path, server, era, BY_LINK) as ann:
        for _ in range(2):
            result = await ann.call()
            assert result["content"][0]["text"] == "somebody", result
        (link,) = ann.links
        assert link == f"{ann.base}/ui/connect/web"
        assert len(server.provider.access_tokens) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_who_declines_gets_the_error_with_the_link(tmp_path: Path, era: Era) -> None:
    """And is asked again with the next call."""
    async with guarded() as server, asked(tmp_path, server, era, BY_LINK) as ann:
        ann.action = "decline"
        for count in (1, 2):
            result = await ann.call()
            error = result["structuredContent"]["error"]
            assert (error["code"], error["data"]["state"]) == ("upstream_auth", "needs_auth"), result
            assert "/ui/connect/web" in error["hint"]
            assert len(ann.links) == count
        assert server.provider.access_tokens == {}


@pytest.mark.parametrize("able", [{}, {"elicitation": {"form": {}}}, {"elicitation": {}}], ids=str)
async def test_a_client_that_shows_no_links_is_asked_nothing(tmp_path: Path, able: Mapping[str, Any]) -> None:
    """It gets the link in words."""
    async with guarded() as server, asked(tmp_path, server, "modern", able) as ann:
        result = await ann.call()
        assert "/ui/connect/web" in result["structuredContent"]["error"]["hint"] and ann.links == []
