"""Listing of resources with the pages of interfaces among them, each with a digest of its content."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from smart_mcp_proxy.catalog import Catalog, Snapshot
from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.indexing.list_sync import AskPolicy, Kind
from smart_mcp_proxy.gateway.shared.app_pages import (
    DIGEST_KEY,
    UNLISTED_KEY,
    UNREAD,
    add_page_digest,
    find_page_uri,
    is_page,
    page_digest,
    remove_gateway_meta,
)
from smart_mcp_proxy.models import Review, Submission
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.upstream import ToolListing, Upstream, fetch_page

PAGES: Final = 64
"""Limit on the pages of one server; each is read whenever its server is listed."""
AT_ONCE: Final = 4
PAGE_TYPE: Final = "text/html;profile=mcp-app"
_NAMED: Final = b"resourceUri"

log = get_logger("lists")


def with_pages(kinds: Sequence[Kind], tools: ListState, catalog: Catalog) -> tuple[Kind, ...]:
    """The kinds, resources with the pages of interfaces among them, those too that only tools name.

    Args:
        kinds: All that are listed.
        tools: What servers have listed of tools.
        catalog: Holds the tools.
    """
    return tuple(
        replace(kind, fetch=partial(_list_resources, kind.fetch, tools, catalog)) if kind.name == "resources" else kind
        for kind in kinds
    )


async def _list_resources(
    fetch: Callable[[Upstream], Awaitable[ToolListing]], tools: ListState, catalog: Catalog, upstream: Upstream
) -> ToolListing:
    """A server's resources, its interfaces' pages pinned; pages that only its tools name are listed, too.

    Raises:
        UpstreamError: They cannot be listed.
    """
    listing = await fetch(upstream)
    if upstream.capabilities.get("resources") is None:
        return listing
    if upstream.capabilities.get("tools") is not None:
        await tools.wait_listed(upstream.name)
    # In a thread: each definition is read anew.
    listed = await asyncio.to_thread(_select_pages, listing)
    unlisted = [uri for uri in _find_named_pages(catalog.snapshot, upstream.name) if uri not in listed]
    pages = [
        *listed.values(),
        *({"uri": uri, "name": uri, "mimeType": PAGE_TYPE, "_meta": {UNLISTED_KEY: True}} for uri in unlisted),
    ]
    if not pages:
        return listing
    with_digests = await _pin_pages(upstream, pages[:PAGES])
    problems = list(listing.problems)
    if len(pages) > PAGES:
        problems.append(f"Server '{upstream.name}' has {len(pages)} interfaces; {PAGES} of them can be shown.")
    return ToolListing(await asyncio.to_thread(_merge_pages, listing, with_digests), tuple(problems))


def _find_named_pages(snapshot: Snapshot, server: str) -> list[str]:
    """Pages that the server's tools name, those that wait for the user included."""
    waiting = (each.record for key, each in snapshot.withheld.items() if key.server == server)
    records = (*snapshot.by_server.get(server, ()), *waiting)
    found = (find_page_uri(msgspec.json.decode(record.raw)) for record in records if _NAMED in record.raw)
    return [uri for uri in dict.fromkeys(found) if uri is not None]


def _select_pages(listing: ToolListing) -> dict[str, Mapping[str, Any]]:
    return {each["uri"]: each for each in listing.definitions if is_page(each["uri"])}


def _merge_pages(listing: ToolListing, pages: Mapping[str, Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The list with pages that have a digest, and none without."""
    kept = [
        pages.get(each["uri"], each) for each in listing.definitions if not is_page(each["uri"]) or each["uri"] in pages
    ]
    listed = {each["uri"] for each in kept}
    return (*kept, *(page for uri, page in pages.items() if uri not in listed))


async def _pin_pages(upstream: Upstream, pages: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Definitions with digests, by URI."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(page: Mapping[str, Any]) -> dict[str, Any]:
        async with places:
            return add_page_digest(page, await _digest(upstream, page["uri"]))

    return {page["uri"]: page for page in await asyncio.gather(*map(one, pages))}


async def _digest(upstream: Upstream, uri: str) -> str:
    try:
        limit_s, era = upstream.config.limits.list_s, upstream.status.era or "handshake"
        raw = await fetch_page(upstream.request, uri, timeout_s=limit_s, era=era)
        return await asyncio.to_thread(_digest_result, raw)
    except (UpstreamError, msgspec.MsgspecError, ValueError, RecursionError) as exc:
        log.warning("page %s of '%s' could not be read, so nobody gets it: %s", uri[:200], upstream.name, exc)
        return UNREAD


def _digest_result(raw: RawResult) -> str:
    return page_digest(msgspec.json.decode(raw.text)["contents"])


class PageReview:
    """The policy of servers, and approval of pages that were approved before pages had digests.

    Args:
        catalog: Holds what was approved.
        review: The policy.
    """

    def __init__(self, catalog: Catalog, review: AskPolicy) -> None:
        self._catalog = catalog
        self._review = review

    async def __call__(self, place: str, definitions: Sequence[Mapping[str, Any]]) -> Review | None:
        """The policy for a list; None where only the user approves."""
        review = await self._review(place, definitions)
        records = self._catalog.snapshot.by_server.get(place, ())
        if not any(is_page(record.key.tool) and DIGEST_KEY.encode() not in record.raw for record in records):
            return review

        def is_page_approved(submission: Submission) -> bool:
            return _is_first_pin(submission) or (review is not None and review(submission))

        return is_page_approved


def _is_first_pin(submission: Submission) -> bool:
    """Whether a definition is the approved one, but for the digest that it has for the first time."""
    before, now = submission.approved, submission.definition
    if before is None or DIGEST_KEY in (before.get("_meta") or {}):
        return False
    return remove_gateway_meta(now) == before
