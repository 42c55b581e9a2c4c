"""Prompts, resources and completions on the one request path, and checks of what servers give."""

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final, Self

import msgspec
from msgspec import structs

from smart_mcp_proxy import policy
from smart_mcp_proxy.catalog import change_hash
from smart_mcp_proxy.errors import ProxyError, RefusedError, RpcAnswer, UpstreamError
from smart_mcp_proxy.gateway.calls.exchange import RequestExchange
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.results.cleaning import clean, fence_contents
from smart_mcp_proxy.gateway.results.results import OFF_LOOP_BYTES, may_need_cleaning, rewrite_result
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.shared.app_pages import is_page, page_digest, read_page_digest
from smart_mcp_proxy.gateway.shared.refusals import content_withheld
from smart_mcp_proxy.gateway.visibility.contents import Contents, require_unchanged
from smart_mcp_proxy.gateway.visibility.items import Target
from smart_mcp_proxy.gateway.visibility.links import Links, is_instruction
from smart_mcp_proxy.gateway.visibility.skill_lookup import decode_skill_entry, read_skill_manifest
from smart_mcp_proxy.models import ClientInput, ToolKey, ToolRecord, WithheldState
from smart_mcp_proxy.names import shelf
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.skills import SkillFile, frontmatter_problem
from smart_mcp_proxy.upstream import Upstream

READ: Final = "resources/read"
GET_SKILL: Final = "skills/get"
NAME_CHARS: Final = 200


@dataclass(eq=False, repr=False)
class ContentChecks:
    """Holds back pages of interfaces and files of skills whose content is not the approved one.

    Attributes:
        is_trusted: Whether a server's policy approves whatever it lists.
        list_again: Has a server listed again, soon: what it has now is to wait for its user by name.
        is_cleaned: Whether what hides from the eye is kept from agents.
    """

    is_trusted: Callable[[str], bool]
    list_again: Callable[[str], None]
    _: KW_ONLY
    is_cleaned: bool

    def is_exact(self, method: str, target: Target) -> bool:
        """Whether the content is approved byte for byte, so that nothing of it may be changed on its way."""
        if method == GET_SKILL:
            return True
        return method == READ and (is_page(target.name) or _find_skill_file(target) is not None)

    def require_known(self, method: str, target: Target) -> None:
        """Pass unless a page or a skill is asked for that nobody could approve.

        Raises:
            QuarantinedError: The server neither lists it nor names it in a tool.
        """
        if method != READ or target.record is not None or self.is_trusted(target.server):
            return
        if is_page(target.name) or is_instruction(target.name):
            self.list_again(target.server)
            raise content_withheld(ToolKey(shelf(target.server, "resources"), target.name), WithheldState.PENDING)

    async def require_approved(self, method: str, target: Target, raw: RawResult) -> None:
        """Pass if what a server answered is what was approved.

        Raises:
            QuarantinedError: It is something else.
            RefusedError: It holds what is kept from agents, and may not be changed, or a skill's main file says of the
                skill what its entry does not.
        """
        record, is_main = target.record, method == READ and _is_main_file(target)
        if record is None or not (is_main or self.is_exact(method, target)):
            return
        text = raw.text
        check = partial(self._check, method, target, record, text)
        is_same = await asyncio.to_thread(check) if is_main or len(text) > OFF_LOOP_BYTES else check()
        if not is_same:
            self.list_again(target.server)
            refusal = content_withheld(record.key, WithheldState.CHANGED)
            refusal.delivery = "executed"
            raise refusal

    def _check(self, method: str, target: Target, record: ToolRecord, text: bytes) -> bool:
        try:
            result: Mapping[str, Any] = msgspec.json.decode(text)
            if method == GET_SKILL:
                return change_hash(record.key.server, result["skill"]) == record.change_hash
            if (file := _find_skill_file(target)) is not None:
                is_same = _is_file(result["contents"], file)
                if is_same and self.is_cleaned and clean(text) is not text:
                    raise _build_hidden_error(record.key, target.name)
                if is_same and _is_main_file(target):
                    _require_frontmatter(record, result["contents"])
                return is_same
            if _is_main_file(target):  # of a generated skill
                if "contents" in result:  # and no question
                    _require_frontmatter(record, result["contents"])
                return True
            # Of a template nobody knows the pages beforehand.
            is_open = self.is_trusted(target.server) or record.key.server == shelf(target.server, "templates")
            return is_open or page_digest(result["contents"]) == read_page_digest(record)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return False


def _find_skill_file(target: Target) -> SkillFile | None:
    """The file of a skill that is meant, as it was approved; None for anything else."""
    record = target.record
    if record is None or record.key.server != shelf(target.server, "skills"):
        return None
    return (read_skill_manifest(record.raw) or {}).get(target.name)


def _is_file(contents: Any, file: SkillFile) -> bool:
    """Whether the one part of a result has these bytes."""
    (part,) = contents
    text, blob = part.get("text"), part.get("blob")
    if text is not None and blob is not None:  # a host may read either
        return False
    data = text.encode() if text is not None else b64decode(blob, validate=True)
    return len(data) == file.size and f"sha256:{sha256(data).hexdigest()}" == file.digest


def _is_main_file(target: Target) -> bool:
    """Whether the requested file is the main file of a listed skill."""
    record = target.record
    return record is not None and record.key == (shelf(target.server, "skills"), target.name)


def _require_frontmatter(record: ToolRecord, contents: Any) -> None:
    """Pass if a skill's main file says of the skill what its entry says.

    Raises:
        RefusedError: It does not.
    """
    (part,) = contents
    text = part.get("text")
    text = text if text is not None else b64decode(part["blob"], validate=True).decode()
    if (problem := frontmatter_problem(text, decode_skill_entry(record.raw)["frontmatter"])) is None:
        return
    raise RefusedError(
        f"The main file of the skill '{record.key}' is not what its entry promises: it {problem}.",
        hint="The server is at fault; its user approved what the entry says. Use another skill.",
        delivery="executed",
        code="frontmatter_differs",
    )


def _build_hidden_error(key: ToolKey, uri: str) -> RefusedError:
    return RefusedError(
        f"A file of the skill '{key}' holds characters that hide from the eye or steer a terminal: "
        f"{uri[:NAME_CHARS]!r}.",
        hint="They cannot be taken out, for the file has to match its digest. The user can look at it, and let "
        "everything through with MCPPROXY_CLEAN_RESULTS=false.",
        delivery="executed",
        code="hidden_characters",
    )


SUBJECT_CHARS = 500
"""Characters of a URI in the activity log."""


class ContentRequest(msgspec.Struct, frozen=True):
    """An agent's request for a server's prompt, resource or completion.

    Attributes:
        method: Of the protocol.
        target: What it is about.
        params: For the server, with its own names, without `_meta`.
        arguments: Those of the agent that the activity log keeps as the policy says.
        caller: Who asks.
        send: How the server is asked, in the seconds that are left; None for a request of this method.
        uri: Of a resource, under which the agent asks for it; empty for what has none, or under its own.
    """

    method: str
    target: Target
    params: Mapping[str, Any]
    arguments: Mapping[str, Any]
    caller: Caller
    send: Callable[[Upstream, float | None], Awaitable[RawResult]] | None = None
    uri: str = ""


@dataclass(eq=False, repr=False)
class ContentRequests:
    """Sends requests for prompts, resources and completions.

    Attributes:
        path: Carries them to their servers.
        lists: Say whether what a server lists is still what was approved.
        links: What results have linked to; None where that leads nowhere.
        checks: Compare what servers give with what was approved; None where nothing is compared.
    """

    path: RequestPath
    lists: ListState
    _: KW_ONLY
    links: Links | None = None
    checks: ContentChecks | None = None

    async def find(self, contents: Contents, uri: str, principal: str) -> Target:
        """Resolve the URI of a resource for a principal, links of its results included.

        It is to be asked for at once: what may be read is looked at for this moment.

        Raises:
            RequestError: It leads nowhere.
            QuarantinedError: It waits for the user.
        """
        return contents.resource(uri) if self.links is None else await self.links.find(contents, uri, principal)

    async def ask(self, ask: ContentRequest) -> RawResult:
        """The server's result as it sent it, cleaned and fenced where the settings ask for it.

        A server's question to a modern client is a result.

        Raises:
            RefusedError: What the server lists is not what was approved, or there are too many requests.
            RequestError: The client did not answer, or hands back what does not belong to this request.
            UpstreamError: The server failed, answered with an error, or asks what it may not.
        """
        exchange = _ContentExchange(ask, self.lists, self.checks, self.path.limits)
        return await self.path.run(exchange)

    def note(self, ask: ContentRequest, outcome: str) -> None:
        """Write down a request that needed no server."""
        self.path.note(_ContentExchange(ask, self.lists, None, self.path.limits), outcome, "", 0.0)


class _ContentExchange(RequestExchange):
    """A request for a prompt, a resource or a completion, on its way to its server."""

    def __init__(self, ask: ContentRequest, lists: ListState, checks: ContentChecks | None, limits: CallLimits) -> None:
        self._checks = checks
        self.method, self.caller, self.arguments, self.send = ask.method, ask.caller, ask.arguments, ask.send
        self.server, self.name, self.record = ask.target.server, ask.target.name, ask.target.record
        self.lists = lists
        self._ask = ask
        self._state = lists
        self._limits = limits
        self._snapshot = lists.catalog.snapshot
        """What the target was found in, a moment ago."""

    @property
    def label(self) -> str:
        """Server, method and name."""
        return policy.mask_text(f"{self.server}:{self.method}:{self.name}", SUBJECT_CHARS)

    @property
    def trace_name(self) -> str:
        """The name of a prompt; a URI may hold anything."""
        return self.name if self.method == "prompts/get" else ""

    async def resolve(self) -> None:
        """Nothing is left to find: what the server does not list has no record.

        Raises:
            QuarantinedError: Without one it may not be asked for.
        """
        if self._checks is not None:
            self._checks.require_known(self.method, self._ask.target)

    def params(self) -> Mapping[str, Any]:
        """The server's own parameters."""
        meta = self._ask.caller.meta
        return {**self._ask.params, "_meta": meta} if meta else self._ask.params

    async def confirm(self) -> None:
        """Pass if what is asked for is still what was found."""
        if (now := self._state.catalog.snapshot) is not self._snapshot:
            require_unchanged(now, self._ask.target)

    async def shape_result(self, raw: RawResult) -> RawResult:
        """The result, cleaned and fenced as the settings ask, unless its very bytes were approved.

        Raises:
            QuarantinedError: It is not what was approved.
        """
        if self._checks is not None:
            await self._checks.require_approved(self.method, self._ask.target, raw)
            if self._checks.is_exact(self.method, self._ask.target):
                return raw
        if self._limits.is_cleaned and may_need_cleaning(raw):
            raw = await rewrite_result(raw, clean)
        return await rewrite_result(raw, fence_contents) if self._limits.is_fenced else raw

    def translate_error(self, error: ProxyError) -> ProxyError:
        """The error under the URI that the agent knows."""
        return _under_uri(error, self._ask)

    def detail(self) -> dict[str, Any]:
        """The method, and whether a link led there."""
        return super().detail() | ({"via": "link"} if self._ask.target.is_linked else {})

    def with_input(self, given: ClientInput) -> Self:
        """The same request, with these ways to ask its client."""
        caller = structs.replace(self._ask.caller, input=given)
        return type(self)(structs.replace(self._ask, caller=caller), self._state, self._checks, self._limits)


def _under_uri(error: ProxyError, ask: ContentRequest) -> ProxyError:
    """The error with the agent's URI for the resource, where its data has the server's."""
    answer = error.answer if isinstance(error, UpstreamError) else None
    data = answer.data if answer is not None else None
    if answer is None or not ask.uri or not isinstance(data, dict) or data.get("uri") != ask.target.name:
        return error
    told = copy(error)
    assert isinstance(told, UpstreamError)
    told.answer = RpcAnswer(answer.code, answer.message, {**data, "uri": ask.uri})
    if isinstance(besides := (error.data or {}).get("rpc_data"), dict) and "uri" in besides:
        told.data = {**(error.data or {}), "rpc_data": {**besides, "uri": ask.uri}}
    return told
