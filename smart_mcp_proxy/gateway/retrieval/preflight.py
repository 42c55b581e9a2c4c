"""Preflight: whether tools can be called now, as they were approved, without calling any of them."""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal

import msgspec
from anyio import create_task_group

from smart_mcp_proxy import policy
from smart_mcp_proxy.errors import ProxyError, QuarantinedError, RefusedError, ToolNotFoundError, UpstreamError
from smart_mcp_proxy.gateway.visibility.visibility import NAME_LIMIT_CHARS, CatalogView
from smart_mcp_proxy.models import ToolRecord, WithheldState

Verdict = Literal["ok", "server_down", "waiting", "refused", "unknown", "changed"]
"""Result of one check: fine; its server does not answer; it waits for approval; it is switched off or out of reach;
no tool has the name; its definition is not the one that was approved, or that the caller names."""
NAMES_LIMIT: Final = 100
_PINNED = r"(?s)(?P<name>.+)@(?P<digest>sha256:[0-9a-f]{16})"
Shown = Callable[[ProxyError], Awaitable[ProxyError]]


class Checked(msgspec.Struct, frozen=True):
    """Outcome for one tool.

    Attributes:
        name: As it was asked for, without a digest.
        verdict: See `Verdict`.
        reason: The verdict in a sentence; empty where all is well.
        hint: What to do about it.
        code: Of the error that a call would get; empty where it would be sent.
        server: The tool's server; empty where it is not known.
        digest: Of the definition as it is approved now; empty where there is none.
        call_with: The call tool that fits; empty where the tool cannot be called.
    """

    name: str
    verdict: Verdict
    reason: str = ""
    hint: str = ""
    code: str = ""
    server: str = ""
    digest: str = ""
    call_with: str = ""


class Preflight:
    """Checks tools of one view.

    Args:
        visible: What may be called.
        shown: An error as its reader gets it.
    """

    def __init__(self, visible: CatalogView, shown: Shown) -> None:
        self._visible = visible
        self._shown = shown

    async def check(self, names: Iterable[str]) -> list[Checked]:
        """The outcome for each name, in order and once; all servers are waited for at the same time.

        Args:
            names: Canonical or listed, each with `@` and a digest behind it where it is held to that definition.
        """
        outcomes: dict[str, Checked] = {}

        async def one(name: str) -> None:
            outcomes[name] = await self._check(name)

        asked = list(dict.fromkeys(names))
        async with create_task_group() as tasks:
            for name in asked:
                tasks.start_soon(one, name)
        return [outcomes[name] for name in asked]

    async def _check(self, asked: str) -> Checked:
        name, digest = await self._split_digest(asked)
        try:
            record = await self._confirm_tool(name)
        except ProxyError as error:
            told = await self._shown(error)
            verdict = _classify_error(error)
            server = _parse_server(self._visible, name)
            return Checked(name[:NAME_LIMIT_CHARS], verdict, told.message, told.hint, error.error_code, server)
        call_with = f"call_tool_{policy.call_with(record.annotations)}"
        checked = Checked(name, "ok", server=record.key.server, digest=record.digest, call_with=call_with)
        if digest and digest != record.digest:
            return msgspec.structs.replace(
                checked,
                verdict="changed",
                reason=f"The definition of '{record.key}' is no longer the one with {digest}.",
                hint="Look at it again (describe_tool, mcpproxy tool show), then ask for the digest it has now.",
                code="definition_changed",
            )
        return checked

    async def _split_digest(self, asked: str) -> tuple[str, str]:
        """Name and digest; a tool's own name may end like a digest, and then it is one."""
        pinned = re.fullmatch(_PINNED, asked)
        if pinned is None or self._visible.find(asked) is not None:
            return asked, ""
        return pinned["name"], pinned["digest"]

    async def _confirm_tool(self, name: str) -> ToolRecord:
        """The tool of that name, as its server lists it on its present connection.

        Raises:
            ProxyError: It cannot be called.
        """
        record = await self._visible.require(name)
        absent = await self._visible.absent(record.key.server)
        if absent is not None:
            raise absent
        return await self._visible.require(name)  # what was listed meanwhile may differ


def _classify_error(error: ProxyError) -> Verdict:
    state = (error.data or {}).get("state")
    if isinstance(error, QuarantinedError):
        known: dict[object, Verdict] = {WithheldState.CHANGED.value: "changed", WithheldState.BLOCKED.value: "refused"}
        return known.get(state, "waiting")
    if isinstance(error, RefusedError):
        return "refused"
    if isinstance(error, ToolNotFoundError):
        return "unknown"
    if isinstance(error, UpstreamError):
        return "server_down"
    raise error


def _parse_server(visible: CatalogView, name: str) -> str:
    """The configured server that a canonical name begins with; empty if none does."""
    server = name.partition(":")[0]
    return server if server in visible.servers else ""
