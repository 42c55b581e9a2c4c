"""Skills as agents meet them besides their list: one entry, and what lies in a directory."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.extensions import SKILLS, read_extension_settings
from smart_mcp_proxy.fastmcp_compat.handlers import Inbound
from smart_mcp_proxy.gateway.calls.requests import ContentRequest, ContentRequests
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.items import Target
from smart_mcp_proxy.gateway.visibility.skill_lookup import list_skill_children, read_skill_manifest
from smart_mcp_proxy.models import ToolRecord
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.skills import find_skill_root, is_inside
from smart_mcp_proxy.upstream import Fleet

NAME_CHARS: Final = 200
_CACHE: Final[Mapping[str, Any]] = {"ttlMs": 0, "cacheScope": "private"}
_NO_CACHE: Final[Mapping[str, Any]] = {}


class SkillHandlers:
    """Answers `skills/get` and `resources/directory/read`.

    Args:
        fleet: The servers.
        asks: The one path to a server.
        caller_of: Makes the caller of a request.
    """

    def __init__(self, fleet: Fleet, asks: ContentRequests, caller_of: Callable[[Inbound], Caller]) -> None:
        self._fleet = fleet
        self._asks = asks
        self._caller_of = caller_of

    async def get(self, contents: Contents, inbound: Inbound) -> RawResult:
        """The entry of one skill, which its server still gives as it was approved."""
        uri = inbound.params["uri"]
        target = contents.skill(uri)
        shown = contents.of("skills")[contents.skill_uri(target.server, target.name)].definition
        ask = ContentRequest("skills/get", target, {"uri": target.name}, {}, self._caller_of(inbound), uri=uri)
        await self._asks.ask(ask)
        return _result({"skill": shown}, inbound)

    async def read_directory(self, contents: Contents, inbound: Inbound) -> RawResult:
        """Children of a directory: of what was approved, or as the server says where a skill is generated.

        Raises:
            RequestError: It is no directory of a skill.
        """
        uri = inbound.params["uri"]
        server, own = contents.own_uri(uri)
        records = contents.list_server_skills(server) if server is not None else []
        if server is not None and (children := list_skill_children(own, records)) is not None:
            shown = [{**child, "uri": contents.skill_uri(server, child["uri"])} for child in children]
            return _result({"resources": shown}, inbound)
        generated = next((each for each in records if _may_hold(each, own)), None)
        if server is None or generated is None or not self._reads_directories(server):
            raise RequestError(
                f"{uri[:NAME_CHARS]!r} is not a directory of a skill.",
                hint="A skill's directory is its uri without /SKILL.md; files are read with resources/read.",
                code="not_found",
            )
        return await self._read_generated_directory(contents, inbound, Target(server, own, generated))

    async def _read_generated_directory(self, contents: Contents, inbound: Inbound, target: Target) -> RawResult:
        params = {key: value for key, value in inbound.params.items() if key != "_meta"} | {"uri": target.name}
        caller = self._caller_of(inbound)
        ask = ContentRequest(inbound.method, target, params, {}, caller, uri=inbound.params["uri"])
        raw = await self._asks.ask(ask)
        try:
            result: dict[str, Any] = msgspec.json.decode(raw.text)
            listed = [each for each in result["resources"] if _is_child(target.name, each["uri"])]
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, RecursionError) as exc:
            raise RequestError(
                f"What server '{target.server}' answered cannot be passed on.", hint="The server is at fault."
            ) from exc
        shown = [{**each, "uri": contents.skill_uri(target.server, each["uri"])} for each in listed]
        return _result({**result, "resources": shown}, inbound)

    def _reads_directories(self, server: str) -> bool:
        upstream = self._fleet.upstreams.get(server)
        settings = read_extension_settings(upstream.capabilities, SKILLS) if upstream is not None else None
        return settings is not None and settings.get("directoryRead") is True


def _may_hold(record: ToolRecord, uri: str) -> bool:
    """Whether a generated skill may have a directory of this URI."""
    root = find_skill_root(record.key.tool)
    return read_skill_manifest(record.raw) is None and (uri == root or is_inside(root, uri))


def _is_child(uri: str, child: str) -> bool:
    """Whether a URI lies directly in a directory; a server that names others would lead in circles."""
    return (
        is_inside(uri, child)
        and "/" not in child.removeprefix(f"{uri}/")
        and child.rpartition("/")[2] not in (".", "..")
    )


def _result(members: Mapping[str, Any], inbound: Inbound) -> RawResult:
    kept = _CACHE if inbound.era == "modern" and inbound.method == "skills/get" else _NO_CACHE
    return RawResult(msgspec.json.encode({**members, **kept}))
