"""Needs you: all that waits for a person; alike tools are decided on together."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from smart_mcp_proxy.errors import ConflictError, RequestError
from smart_mcp_proxy.policy.approval_groups import (
    EFFECTS,
    ApprovalFold,
    ApprovalGroup,
    Tool,
    compute_approval_digest,
    group_waiting,
)
from smart_mcp_proxy.servers import warnings_about
from smart_mcp_proxy.web.page.hidden import TEXT_CHARS
from smart_mcp_proxy.web.page.operations import part
from smart_mcp_proxy.web.page.rendering import is_shown_whole
from smart_mcp_proxy.web.page.visit import DisplayLimits, Form, PageRoute, PageVisit

MOST_WAITING: Final = 500
"""Definitions that are read for a page: the others come when these are decided on."""
SHOWN: Final = 25
"""Definitions, or those that changed alike, that are decided on together: a person reads them."""
PAGE_SHOWN: Final = 2 * SHOWN
LIMITS: Final = DisplayLimits(fields=120, path=300, text=TEXT_CHARS)
"""Limits on a definition; of 5,000 published ones 20 have more fields."""
LOG_LINES: Final = 5
_FILTERS: Final = ("server", "name")


class _Batch(NamedTuple):
    """A group that is decided on together, or a part of it, and those of its tools that are shown whole."""

    group: ApprovalGroup
    folds: tuple[ApprovalFold, ...]
    tools: list[Tool]
    digest: str


async def _show_waiting(visit: PageVisit) -> Response:
    wanted, number = visit.read_parameters(_FILTERS), visit.number("page")
    waiting, pages = await _read_pages(visit, wanted)
    batches = pages[number] if number < len(pages) else []
    open_tools = _collect_undoubted(batches)
    return await visit.page(
        "waiting.html",
        waiting=waiting,
        batches=batches,
        number=number,
        pages=len(pages),
        wanted=wanted,
        open_tools=open_tools,
        digest=compute_approval_digest(open_tools),
        limits=LIMITS,
        effects=EFFECTS,
        is_whole=is_whole,
        facts=await _read_facts(visit),
    )


async def _read_pages(visit: PageVisit, wanted: dict[str, str]) -> tuple[dict[str, Any], list[list[_Batch]]]:
    """Read what waits, and put together what is decided on together, page by page."""
    query = {"limit": MOST_WAITING, "changes": "true", "blocked": "false", "server": wanted.get("server")}
    waiting = await visit.ask("GET", "approvals", query)
    pattern = wanted.get("name", "*")
    tools = [tool for tool in waiting["tools"] if fnmatchcase(tool["name"], pattern)]
    pages: list[list[_Batch]] = []
    room = 0
    for group in group_waiting(tools):
        for start in range(0, len(group.folds), SHOWN):
            folds = group.folds[start : start + SHOWN]
            shown = [tool for fold in folds if is_whole(fold.changes) for tool in fold.tools]
            if len(folds) > room:
                pages.append([])
                room = PAGE_SHOWN
            room -= len(folds)
            pages[-1].append(_Batch(group, folds, shown, compute_approval_digest(shown)))
    return waiting, pages


def _collect_undoubted(batches: Iterable[_Batch]) -> list[Tool]:
    """The tools of a page that are approved at once: none in which the scanner found something."""
    return [tool for batch in batches if not batch.group.is_doubted for tool in batch.tools]


async def _read_facts(visit: PageVisit) -> dict[str, Any]:
    """Read what is shown of servers beside their state: entries that wait, and logs of those that failed."""
    status = await visit.read_status()
    facts = {}
    for each in status["servers"]:
        name = each["name"]
        if each["state"] == "quarantined":
            facts[name] = await visit.ask("GET", f"servers/{part(name)}", {"review": "true"})
            facts[name]["warnings"] = warnings_about(facts[name]["config"])
            facts[name]["is_whole"] = is_shown_whole(facts[name]["config"])
        elif each["state"] == "error":
            facts[name] = await visit.ask("GET", f"servers/{part(name)}/logs", {"lines": LOG_LINES})
    return facts


def is_whole(changes: Iterable[Any]) -> bool:
    """Whether a definition is shown with all that it says: nobody approves here what is not on the page."""
    changes = list(changes)
    is_cut = any(
        len(change["path"]) > LIMITS.path
        or any(len(words["text"]) > LIMITS.text for words in change["words"] if words["kind"] == "added")
        for change in changes
    )
    return len(changes) <= LIMITS.fields and not is_cut


async def _approve_together(visit: PageVisit, form: Form) -> Response:
    """Approve what a page showed, known by the digest of all of it.

    Raises:
        ConflictError: Something of it is another by now.
    """
    _, pages = await _read_pages(visit, {name: form.text(name) for name in _FILTERS if form.text(name)})
    digest = form.text("digest")
    shown = [_collect_undoubted(page) for page in pages] + [batch.tools for page in pages for batch in page]
    tools = next((each for each in shown if each and compute_approval_digest(each) == digest), None)
    if tools is None:
        raise ConflictError("What waits is no longer what the page showed.", hint="Nothing is approved. Look again.")
    return await _send_approval(visit, form, [{"name": tool["name"], "hash": tool["hash"]} for tool in tools])


async def _approve(visit: PageVisit, form: Form) -> Response:
    names, hashes = form.texts("name"), form.texts("hash")
    if len(names) != len(hashes):
        raise RequestError("The form names other tools than it has hashes of.", hint="Reload the page.")
    seen = [{"name": name, "hash": hash_} for name, hash_ in zip(names, hashes, strict=True)]
    return await _send_approval(visit, form, seen)


async def _send_approval(visit: PageVisit, form: Form, seen: list[dict[str, str]]) -> Response:
    # Nothing that is blocked has the button: one that is by now was blocked by somebody else since.
    decision = {"tools": seen, "reopens": form.has("reopens"), "lifts_blocks": False}
    done = await visit.ask("POST", "approvals/approve", body=decision)
    approved = done["approved"]
    note = f"Approved {approved[0]}." if len(approved) == 1 else f"Approved {len(approved)} tools."
    if counted := done.get("counted"):
        note = f"Counted for {len(counted)}, which others have to approve as well." + (f" {note}" if approved else "")
    if done["moved"]:
        note += f" {len(done['moved'])} not approved: changed or blocked meanwhile."
    return visit.go_back(form, note, default="/ui/waiting", is_bad=bool(done["moved"]))


async def _decide(operation: str, words: str, visit: PageVisit, form: Form) -> Response:
    done = await visit.ask("POST", f"approvals/{operation}", body={"name": form.text("name")})
    return visit.go_back(form, f"{words} {done['name']}.", default="/ui/waiting")


PLACES: Final = (
    PageRoute("GET", "/waiting", _show_waiting),
    PageRoute("POST", "/approve", _approve),
    PageRoute("POST", "/approve/together", _approve_together),
    PageRoute("POST", "/block", partial(_decide, "block", "Blocked")),
    PageRoute("POST", "/unblock", partial(_decide, "unblock", "Lifted the block of")),
)
