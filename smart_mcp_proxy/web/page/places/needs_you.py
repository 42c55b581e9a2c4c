"""Needs you: all that waits for a person, each with its one action."""

from functools import partial
from typing import Any, Final

from starlette.responses import Response

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.servers import warnings_about
from smart_mcp_proxy.web.page.hidden import TEXT_CHARS
from smart_mcp_proxy.web.page.operations import part
from smart_mcp_proxy.web.page.rendering import is_shown_whole
from smart_mcp_proxy.web.page.visit import DisplayLimits, Form, PageRoute, PageVisit

SHOWN: Final = 10
"""Definitions on a page: a person reads them one by one."""
LIMITS: Final = DisplayLimits(fields=40, path=300, text=TEXT_CHARS)
LOG_LINES: Final = 5


async def _show_needs_you(visit: PageVisit) -> Response:
    start, server = visit.number("offset"), visit.read_parameter("server") or None
    wanted = {"limit": SHOWN, "offset": start, "changes": "true", "blocked": "false", "server": server}
    waiting = await visit.ask("GET", "approvals", wanted)
    for tool in waiting["tools"]:
        tool["is_whole"] = _is_whole(tool["changes"])
    status = await visit.ask("GET", "status")
    facts = {}
    for each in status["servers"]:
        name = each["name"]
        if each["state"] == "quarantined":
            facts[name] = await visit.ask("GET", f"servers/{part(name)}", {"review": "true"})
            facts[name]["warnings"] = warnings_about(facts[name]["config"])
            facts[name]["is_whole"] = is_shown_whole(facts[name]["config"])
        elif each["state"] == "error":
            facts[name] = await visit.ask("GET", f"servers/{part(name)}/logs", {"lines": LOG_LINES})
    return await visit.page(
        "needs_you.html", waiting=waiting, facts=facts, start=start, limit=SHOWN, server=server, limits=LIMITS
    )


def _is_whole(changes: list[dict[str, Any]]) -> bool:
    """Whether a definition is shown with all that it says: nobody approves here what is not on the page."""
    is_cut = any(
        len(change["path"]) > LIMITS.path
        or any(len(words["text"]) > LIMITS.text for words in change["words"] if words["kind"] == "added")
        for change in changes
    )
    return len(changes) <= LIMITS.fields and not is_cut


async def _approve(visit: PageVisit, form: Form) -> Response:
    names, hashes = form.texts("name"), form.texts("hash")
    if len(names) != len(hashes):
        raise RequestError("The form names other tools than it has hashes of.", hint="Reload the page.")
    seen = [{"name": name, "hash": hash_} for name, hash_ in zip(names, hashes, strict=True)]
    # Nothing that is blocked has the button: one that is by now was blocked by somebody else since.
    decision = {"tools": seen, "reopens": form.has("reopens"), "lifts_blocks": False}
    done = await visit.ask("POST", "approvals/approve", body=decision)
    approved = done["approved"]
    note = f"Approved {approved[0]}." if len(approved) == 1 else f"Approved {len(approved)} tools."
    if done["moved"]:
        note += f" {len(done['moved'])} not approved: changed or blocked meanwhile."
    return visit.back(form, note, is_bad=bool(done["moved"]))


async def _decide(operation: str, words: str, visit: PageVisit, form: Form) -> Response:
    done = await visit.ask("POST", f"approvals/{operation}", body={"name": form.text("name")})
    return visit.back(form, f"{words} {done['name']}.")


PLACES: Final = (
    PageRoute("GET", "/", _show_needs_you),
    PageRoute("POST", "/approve", _approve),
    PageRoute("POST", "/block", partial(_decide, "block", "Blocked")),
    PageRoute("POST", "/unblock", partial(_decide, "unblock", "Lifted the block of")),
)
