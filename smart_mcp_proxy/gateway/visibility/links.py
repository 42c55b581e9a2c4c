"""Links in results: rewritten to lead to the gateway, remembered for their principal."""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from smart_mcp_proxy.catalog import CALL_WAIT_S, LINK_LIFE_S, STORE_AGAIN_S, Catalog, links
from smart_mcp_proxy.errors import CatalogError, ProxyError, RequestError, UnverifiedError
from smart_mcp_proxy.extensions import APP_META
from smart_mcp_proxy.gateway.results.results import decode_members, encode_raw, read_object, read_text, rewrite_result
from smart_mcp_proxy.gateway.shared.app_pages import FLAT_KEY
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.items import Target
from smart_mcp_proxy.gateway.visibility.uri_templates import gateway_uri
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.names import shelf
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import fields, get_logger

LINKS_PER_RESULT: Final = 256
"""Links of a result that are remembered; all are rewritten. Source: docs/design/wire-formats.md#links-in-results"""
URI_CHARS: Final = 4_096
"""A longer URI is not remembered, so that a thousand of them take a few megabytes at most."""
_NEVER_BY_LINK: Final = re.compile(r"\s*(?:ui|skill):", re.IGNORECASE)
_SKILL_FILE: Final = re.compile(r"(?:^|[/:\\])skill\.md/*(?:[?#].*)?\Z", re.IGNORECASE | re.DOTALL)
"""Interfaces run in a host, skills steer a model: both are for the user to approve.

Source: docs/design/wire-formats.md#links-in-results"""

OPENED_S: Final = 30 * 86_400.0
"""Seconds that an interface can call tools after its page was read, or since its last call: hosts keep pages."""
_PAGE_OPENED: Final = "ui:"
"""In the place of a URI: a page was opened."""

UriOf = Callable[[str], str]
Found = Callable[[str], None]

log = get_logger("links")


def opens_by_link(uri: str) -> bool:
    """Whether a link can open a resource of this URI; never an interface, nor a skill's file."""
    is_of_hosts = any(_NEVER_BY_LINK.match(spelled) for spelled in (uri, unquote(uri)))
    return len(uri) <= URI_CHARS and not is_of_hosts and not is_instruction(uri)


def is_instruction(uri: str) -> bool:
    """Whether a URI is that of a skill's main file, whatever lists it."""
    # Servers decode what they are asked for: an escaped spelling leads to the same file.
    return any(_SKILL_FILE.search(spelled) for spelled in (uri, unquote(uri)))


def relink_result(raw: bytes, uri_of: UriOf, found: Found = lambda uri: None) -> bytes:
    """A tool's result whose links lead to the gateway; the same bytes where there is none.

    Args:
        raw: JSON text.
        uri_of: The gateway's URI for one of the server's.
        found: Gets the server's URI of each resource that the content links to or embeds.
    """
    try:
        members = decode_members(raw)
        meta = members.get("_meta")
        nested = _at(meta, (APP_META, "resourceUri"), uri_of, lambda uri: None)
        flat = _at(nested or meta, (FLAT_KEY,), uri_of, lambda uri: None)
        new = {"content": _blocks(members.get("content"), uri_of, found), "_meta": flat or nested}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # what cannot be read is passed on as it is
        return raw
    changed = {name: value for name, value in new.items() if value is not None}
    return msgspec.json.encode(members | changed) if changed else raw


def relink_prompt(raw: bytes, uri_of: UriOf) -> bytes:
    """A prompt whose links lead to the gateway; the same bytes where there is none."""
    try:
        members = decode_members(raw)
        messages = _list.decode(members.get("messages", b"[]"))
        new = [_message(message, uri_of) for message in messages]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return raw
    if all(changed is None for changed in new):
        return raw
    kept = [message if changed is None else changed for message, changed in zip(messages, new, strict=True)]
    return msgspec.json.encode(members | {"messages": encode_raw(kept)})


def relink_tool(definition: dict[str, Any], uri_of: UriOf) -> dict[str, Any]:
    """A tool's definition whose interface is named as the gateway names it, in both forms of the name."""
    meta = definition.get("_meta")
    if not isinstance(meta, dict):
        return definition
    ui, flat = meta.get(APP_META), meta.get(FLAT_KEY)
    changed: dict[str, Any] = {}
    if isinstance(ui, dict) and isinstance(uri := ui.get("resourceUri"), str):
        changed[APP_META] = {**ui, "resourceUri": uri_of(uri)}
    if isinstance(flat, str):
        changed[FLAT_KEY] = uri_of(flat)
    return {**definition, "_meta": {**meta, **changed}} if changed else definition


class Links:
    """Links of servers' results, by principal; shared by all processes on one catalog.

    Args:
        catalog: Keeps the links.
        wall: Seconds since the epoch, which all processes know; the catalog's if left out.
    """

    def __init__(self, catalog: Catalog, wall: Callable[[], float] | None = None) -> None:
        self._catalog = catalog
        self._wall = wall or catalog.now_s

    async def relink_and_remember(
        self, raw: RawResult, server: str, principal: str, *, keeps_uris: bool = False
    ) -> RawResult:
        """A tool's result with links that lead to the gateway, which from now on its principal can follow.

        Args:
            raw: As the server sent it.
            server: Its name.
            principal: Gets the result.
            keeps_uris: Whether the principal knows resources by the server's own URIs.
        """
        found: dict[str, None] = {}
        uri_of = str if keeps_uris else partial(gateway_uri, server)
        raw = await rewrite_result(raw, partial(relink_result, uri_of=uri_of, found=found.setdefault))
        if found:
            await self._remember(server, principal, found)
        return raw

    async def find(self, contents: Contents, uri: str, principal: str) -> Target:
        """Resolve a URI for a principal, links of its results included.

        Raises:
            RequestError: It leads nowhere.
            QuarantinedError: It waits for the user.
            UnverifiedError: Whether a result linked to it cannot be looked up.
        """
        server, own = contents.own_uri(uri)
        with suppress(ProxyError):
            target = contents.resource(uri)
            if target.name == own and (server is not None or _is_listed_itself(target)):
                return target
        refusal: ProxyError | None = None
        unknown: UnverifiedError | None = None
        linked: Sequence[str] = ()
        try:
            if opens_by_link(own):
                linked = await self._look_up_servers(principal, own)
        except UnverifiedError as error:
            unknown = error
        # A template for pages of the web fits those of every server: one that was linked to goes to who linked to it.
        for linking in linked:
            if server in (None, linking):
                try:
                    return contents.resolve_link(linking, own)
                except ProxyError as error:
                    refusal = error
        if refusal is not None:
            raise refusal
        try:
            return contents.resource(uri)
        except RequestError:
            if unknown is not None:  # a result may have linked to it
                raise unknown from None
            raise

    async def note_opened(self, server: str, principal: str, session: str | None) -> None:
        """Remember that a caller has opened a page of a server's interface.

        Args:
            server: Configured name.
            principal: Opened it.
            session: Of the caller, where it has one: other sessions of the principal have other pages open.
        """
        where = partial(links.store, principal=_opener(principal, session), server=server, uris=[_PAGE_OPENED])
        try:
            await self._catalog.write(partial(where, now_s=self._wall(), life_s=OPENED_S), limit_s=CALL_WAIT_S)
        except CatalogError as exc:
            log.warning("an interface of '%s' cannot call its tools, for it could not be stored: %s", server, exc)

    async def find_opened_servers(self, principal: str, session: str | None) -> tuple[str, ...]:
        """Servers of whose interfaces a caller has opened a page, latest first.

        Raises:
            UnverifiedError: They cannot be looked up.
        """
        return await self._look_up_servers(_opener(principal, session), _PAGE_OPENED, OPENED_S)

    async def _remember(self, server: str, principal: str, found: Iterable[str]) -> None:
        """Keeps the links to what is not listed and approved anyway."""
        known, place = self._catalog.snapshot.by_key, shelf(server, "resources")
        uris = [uri for uri in found if ToolKey(place, uri) not in known and opens_by_link(uri)][:LINKS_PER_RESULT]
        if not uris:
            return
        store = partial(links.store, principal=principal, server=server, uris=uris, now_s=self._wall())
        try:
            await self._catalog.write(store, limit_s=CALL_WAIT_S)
        except CatalogError as exc:  # a call that was carried out does not fail over it
            log.warning(
                "links of '%s' cannot be followed, for they could not be stored: %s",
                server,
                exc,
                extra=fields(server=server),
            )

    async def _look_up_servers(self, principal: str, uri: str, life_s: float = LINK_LIFE_S) -> tuple[str, ...]:
        find = partial(links.find_servers, principal=principal, uri=uri, now_s=self._wall(), life_s=life_s)
        try:
            return await self._catalog.read(find, limit_s=CALL_WAIT_S)
        except CatalogError as exc:
            raise UnverifiedError(
                f"What {uri[:URI_CHARS]!r} leads to cannot be looked up now.",
                hint="Try again in a while.",
                retry_after_s=STORE_AGAIN_S,
            ) from exc


def _opener(principal: str, session: str | None) -> str:
    """Owner of what a caller has opened, apart from the links of its results; no principal has a line end."""
    return f"{principal}\n{session or ''}"


def _is_listed_itself(target: Target) -> bool:
    """Whether its server lists this very URI, rather than a template that fits it."""
    return target.record is not None and target.record.key.server == shelf(target.server, "resources")


_list = msgspec.json.Decoder(list[msgspec.Raw])


def _blocks(raw: msgspec.Raw | None, uri_of: UriOf, found: Found) -> msgspec.Raw | None:
    """Content blocks with their links rewritten; None where nothing changes."""
    blocks = _list.decode(raw or b"[]")
    new = [_block(block, uri_of, found) for block in blocks]
    if all(changed is None for changed in new):
        return None
    return encode_raw([block if changed is None else changed for block, changed in zip(blocks, new, strict=True)])


def _block(raw: msgspec.Raw, uri_of: UriOf, found: Found) -> msgspec.Raw | None:
    kind = read_text(read_object(raw).get("type"))
    if kind == "resource_link":
        return _at(raw, ("uri",), uri_of, found)
    return _at(raw, ("resource", "uri"), uri_of, found) if kind == "resource" else None


def _message(raw: msgspec.Raw, uri_of: UriOf) -> msgspec.Raw | None:
    """A prompt's message with its links rewritten; None where nothing changes."""
    message = read_object(raw)
    content = message.get("content", msgspec.Raw(b"null"))
    rewrite = _blocks if bytes(content).lstrip()[:1] == b"[" else _block
    new = rewrite(content, uri_of, lambda uri: None)
    return None if new is None else encode_raw({**message, "content": new})


def _at(raw: msgspec.Raw | None, path: tuple[str, ...], uri_of: UriOf, found: Found) -> msgspec.Raw | None:
    """An object with the URI at `path` rewritten; None where nothing changes."""
    members = read_object(raw)
    name, *deeper = path
    value = members.get(name)
    new = _at(value, tuple(deeper), uri_of, found) if deeper else _rewrite_uri(read_text(value), uri_of, found)
    return None if new is None else encode_raw({**members, name: new})


def _rewrite_uri(uri: str | None, uri_of: UriOf, found: Found) -> msgspec.Raw | None:
    if uri is None:
        return None
    found(uri)
    shown = uri_of(uri)
    return None if shown == uri else encode_raw(shown)
