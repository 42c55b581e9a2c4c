"""The end of a session whose server begins to refuse it."""

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.upstream.ending import Ending

pytestmark = pytest.mark.anyio


class Slow:
    """A session whose first check is answered late, and whose later ones are refused."""

    era = "handshake"

    def __init__(self) -> None:
        self.asked = 0
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def request(self, method: str, params: Mapping[str, Any], **options: Any) -> RawResult:
        self.asked += 1
        if self.asked > 1:
            raise UpstreamAuthError("Server 'fake' answered with HTTP 401.")
        self.is_asked.set()
        await self.may_answer.wait()
        return RawResult(b"{}")

    async def wait_closed(self) -> UpstreamError:
        await asyncio.Event().wait()
        raise AssertionError("it is never closed")


async def test_a_refusal_while_the_server_is_asked_is_asked_about_again() -> None:
    """The answer may be older than the refusal; many refusals meanwhile are asked about once."""
    session: Any = Slow()
    ending = Ending("fake", session)
    try:
        with anyio.fail_after(20):
            ending.doubt()
            await session.is_asked.wait()
            for _ in range(10):
                ending.doubt()
            session.may_answer.set()
            assert isinstance(await ending.wait(), UpstreamAuthError)
        assert session.asked == 2
    finally:
        ending.close()
