"""A person's own sign-ins at servers where each person has one."""

from typing import Final

from starlette.responses import Response

from smart_mcp_proxy.web.page.operations import part
from smart_mcp_proxy.web.page.visit import Form, PageRoute, PageVisit


async def _show_sign_ins(visit: PageVisit) -> Response:
    return await visit.page("sign_ins.html", sign_ins=(await visit.ask("GET", "sign-ins"))["sign_ins"])


async def _forget(visit: PageVisit, form: Form) -> Response:
    name = form.text("name")
    done = await visit.ask("DELETE", f"sign-ins/{part(name)}")
    note = f"Forgot your sign-in at {name}." if done["was_signed_in"] else f"You were not signed in at {name}."
    problem = f" It was not revoked: {done['problem']}" if done["problem"] else ""
    return visit.go_back(form, note + problem, default="/ui/sign-ins", is_bad=bool(problem))


PLACES: Final = (PageRoute("GET", "/sign-ins", _show_sign_ins), PageRoute("POST", "/sign-ins/forget", _forget))
