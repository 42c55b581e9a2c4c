"""Clients and tokens: who is connected, and the tokens that the operator makes for agents."""

from typing import Any, Final

from starlette.responses import Response

from smart_mcp_proxy.errors import ProxyError, RequestError
from smart_mcp_proxy.web.page.operations import OperationError, part
from smart_mcp_proxy.web.page.visit import Form, PageRoute, PageVisit

ACCESS: Final = {
    "read": "read",
    "write": "read, create and change",
    "destructive": "read, create, change, delete and overwrite for good",
}
EVERY: Final = "*"
"""Value in the form for all servers, those that are added later included."""
LIVES: Final = (("1", "one day"), ("7", "a week"), ("30", "30 days"), ("365", "a year"), ("", "no end"))
DAY_S: Final = 86_400


async def _show_clients(visit: PageVisit) -> Response:
    return await _build_page(visit, Form([]))


async def _build_page(
    visit: PageVisit, form: Form, *, made: dict[str, Any] | None = None, problem: ProxyError | None = None
) -> Response:
    tokens = (await visit.ask("GET", "tokens"))["tokens"]
    profiles = await visit.ask("GET", "profiles")
    return await visit.page(
        "clients.html",
        problem,
        tokens=list(reversed(tokens)),
        profiles=[each["name"] for each in profiles],
        access=ACCESS,
        lives=LIVES,
        every=EVERY,
        form=form,
        made=made,
    )


async def _make(visit: PageVisit, form: Form) -> Response:
    """Shown in the answer itself, this once: an address or a cookie would keep the token."""
    days = form.text("days")
    if days and days not in {value for value, _ in LIVES}:
        raise RequestError(f"A token cannot end in {days[:20]!r} days.", hint="Choose one of the list.")
    body = {
        "name": form.text("name"),
        "servers": None if form.text("reach") == EVERY else form.texts("server"),
        "access": form.text("access"),
        "profile": form.text("profile") or None,
        "expires_in_s": int(days) * DAY_S if days else None,
    }
    try:
        if body["servers"] == [] or not body["access"]:
            what = "server" if body["servers"] == [] else "kind of call"
            raise RequestError(f"No {what} is chosen, so the token would open nothing.", hint="Choose what it is for.")
        made = await visit.ask("POST", "tokens", body=body)
    except (OperationError, RequestError) as error:
        return await _build_page(visit, form, problem=error)
    return await _build_page(visit, Form([]), made=made)


async def _revoke(visit: PageVisit, form: Form) -> Response:
    await visit.ask("DELETE", f"tokens/{part(form.text('name'))}")
    return visit.go_back(form, f"Revoked the token {form.text('name')}.", default="/ui/clients")


PLACES: Final = (
    PageRoute("GET", "/clients", _show_clients),
    PageRoute("POST", "/tokens", _make),
    PageRoute("POST", "/tokens/revoke", _revoke),
)
