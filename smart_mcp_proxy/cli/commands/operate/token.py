"""`mcpproxy token`: tokens for agents, each with the servers it reaches and what it may do there."""

import re
import time
from collections.abc import Mapping
from typing import Any, Final, Literal

from cyclopts import App

from smart_mcp_proxy.cli.support.access import open_at_rest
from smart_mcp_proxy.cli.support.failure import UsageError
from smart_mcp_proxy.cli.support.output import clean, say, show, show_json, table
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.models import Role
from smart_mcp_proxy.names import shell_word

app = App(
    name="token",
    help_epilogue="""\
Examples:
  mcpproxy token create ci --servers github,docs --expires 30d
  mcpproxy token list
  mcpproxy token revoke ci""",
)

_UNITS_S: Final = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LIFE: Final = re.compile(r"([1-9][0-9]{0,5})([mhdw])")


def parse_life(text: str) -> float | None:
    """Seconds of a life such as `30d`, `12h` or `45m`; None for `never`.

    Raises:
        UsageError: It is something else.
    """
    match = _LIFE.fullmatch(text)
    if match is None and text != "never":
        raise UsageError(f"--expires is {text[:40]!r}.", hint="Write 45m, 12h, 30d, 8w or never.")
    return None if match is None else float(int(match[1]) * _UNITS_S[match[2]])


@app.command(
    help_epilogue="""\
Examples:
  mcpproxy token create ci --servers github,docs
  mcpproxy token create ann --access destructive --expires never --json
  TOKEN=$(mcpproxy token create job --profile work --expires 12h)"""
)
async def create(
    name: str,
    /,
    *,
    servers: str | None = None,
    profile: str | None = None,
    access: Literal["read", "write", "destructive"] = "read",
    expires: str = "30d",
    role: Role | None = None,
    json: bool = False,
) -> None:
    """Make a token for an agent. It is shown this once and cannot be read back.

    Args:
        name: What you call it.
        servers: Only these servers, separated by commas; all if left out.
        profile: Only what this profile of the server file has.
        access: The most that tools called with it may do. A tool that does not say is taken to write.
        expires: Its life: 45m, 12h, 30d, 8w or never.
        role: What it may do at the page and over REST; nothing if left out.
        json: Print it as an object.
    """
    named = None if servers is None else [part.strip() for part in servers.split(",") if part.strip()]
    if named == []:
        raise UsageError("--servers names none.", hint="Leave it out for all servers.")
    body = {
        "name": name,
        "servers": named,
        "access": access,
        "profile": profile,
        "expires_in_s": parse_life(expires),
    } | ({} if role is None else {"role": role})
    async with open_at_rest(open_settings()) as api:
        made = await api.create_token(body)
    if json:
        show_json(made)
        return
    show(made["token"])
    say("This is all of it that will ever be shown. Agents send it as: Authorization: Bearer TOKEN")
    say(
        f"{_reach(made)}. {_life(made, time.time())}. End it with: mcpproxy token revoke {shell_word(name)}",
        style="dim",
    )


@app.command(name="list", help_epilogue="Examples:\n  mcpproxy token list\n  mcpproxy token list --json")
async def list_tokens(*, json: bool = False) -> None:
    """List what all tokens allow, when they end and when they were last used; not the tokens themselves.

    Args:
        json: Print a list of objects.
    """
    async with open_at_rest(open_settings()) as api:
        tokens = await api.tokens()
    if json:
        show_json(tokens)
        return
    now_s = time.time()
    rows = [
        [clean(one["name"]), one["id"], clean(_reach(one)), _life(one, now_s), _moment(one["last_used_s"], "never")]
        for one in tokens
    ]
    if rows:
        show(table(["name", "id", "reaches", "life", "last used"], rows))
    else:
        say("There are no tokens. Make one with: mcpproxy token create NAME")


@app.command(help_epilogue="Examples:\n  mcpproxy token revoke ci")
async def revoke(name: str, /, *, json: bool = False) -> None:
    """End a token for good. Running gateways refuse it within two seconds.

    Args:
        name: What you called it.
        json: Print what was done as an object.
    """
    async with open_at_rest(open_settings()) as api:
        await api.revoke_token(name)
    if json:
        show_json({"revoked": name})
        return
    say(f"Revoked {clean(name)}.")


def _reach(token: Mapping[str, Any]) -> str:
    if token.get("is_altered"):
        return "nothing: changed by something else than a gateway"
    places = "all servers" if token["servers"] is None else ", ".join(token["servers"])
    held = "" if token["profile"] is None else f" within profile {token['profile']}"
    as_role = f", as {token['role']}" if token.get("role") else ""
    return f"{token['access']} on {places}{held}{as_role}"


def _life(token: Mapping[str, Any], now_s: float) -> str:
    if token["revoked_s"] is not None:
        return f"revoked {_moment(token['revoked_s'], '')}"
    ends_s = token["expires_s"]
    return f"{'expired' if ends_s is not None and ends_s <= now_s else 'expires'} {_moment(ends_s, 'never')}"


def _moment(at_s: float | None, otherwise: str) -> str:
    if at_s is None:
        return otherwise
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))
    except (OverflowError, OSError, ValueError):  # beyond what calendars know: one odd token hides no others
        return f"{at_s:g} s after 1970"
