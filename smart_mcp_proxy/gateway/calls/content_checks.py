"""Checks of what servers give against what was approved of it, byte for byte."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import QuarantinedError
from smart_mcp_proxy.gateway.results.results import OFF_LOOP_BYTES
from smart_mcp_proxy.gateway.shared.app_pages import is_page, page_digest, pinned_digest
from smart_mcp_proxy.gateway.shared.refusals import content_withheld
from smart_mcp_proxy.gateway.visibility.contents import Target
from smart_mcp_proxy.models import ToolKey, WithheldState
from smart_mcp_proxy.names import shelf
from smart_mcp_proxy.raw_result import RawResult

__all__ = ["ContentChecks"]

READ: Final = "resources/read"
TEMPLATES: Final = "templates"


class ContentChecks:
    """Holds back pages of interfaces whose content is not the approved one.

    Args:
        is_trusted: Whether a server's policy approves whatever it lists.
        list_again: Has a server listed again, soon: what it has now is to wait for its user by name.
    """

    def __init__(self, is_trusted: Callable[[str], bool], list_again: Callable[[str], None]) -> None:
        self._is_trusted = is_trusted
        self._list_again = list_again

    def is_exact(self, method: str, target: Target) -> bool:
        """Whether the content is approved byte for byte, so that nothing of it may be changed on its way."""
        return method == READ and is_page(target.name)

    def require_known(self, method: str, target: Target) -> None:
        """Pass unless a page is asked for that nobody could approve.

        Raises:
            QuarantinedError: The server neither lists it nor names it in a tool.
        """
        if method == READ and target.record is None and is_page(target.name) and not self._is_trusted(target.server):
            self._list_again(target.server)
            raise content_withheld(ToolKey(shelf(target.server, "resources"), target.name), WithheldState.PENDING)

    async def require_approved(self, method: str, target: Target, raw: RawResult) -> None:
        """Pass if what a server answered is what was approved.

        Raises:
            QuarantinedError: It is something else.
        """
        record = target.record
        if method != READ or record is None or not is_page(target.name) or self._is_trusted(target.server):
            return
        if record.key.server == shelf(target.server, TEMPLATES):  # of which nobody knows the pages beforehand
            return
        text = raw.text
        found = await asyncio.to_thread(_digest_of, text) if len(text) > OFF_LOOP_BYTES else _digest_of(text)
        if found != pinned_digest(record):
            raise self._changed(target, record.key)

    def _changed(self, target: Target, key: ToolKey) -> QuarantinedError:
        self._list_again(target.server)
        return content_withheld(key, WithheldState.CHANGED)


def _digest_of(text: bytes) -> str:
    """Digest of a page; empty for what is none."""
    try:
        result: Mapping[str, Any] = msgspec.json.decode(text)
        return page_digest(result["contents"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError):
        return ""
