"""Pages of the sign-in at an OpenID Connect provider; apart, because they load slowly."""

import hmac
import logging
import math
import re
import time
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address
from typing import Any, Final
from urllib.parse import unquote

import httpx2
import msgspec
from anyio import to_thread
from fastmcp.server.auth.oauth_proxy.ui import create_error_html
from pydantic import AnyUrl
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_mcp_proxy import errors
from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.fastmcp_compat.auth.sign_in import TIMED, SignInProxy
from smart_mcp_proxy.models import Principal
from smart_mcp_proxy.policy.limits import TokenBucket
from smart_mcp_proxy.servers import Profile
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.auth.groups import Groups
from smart_mcp_proxy.web.auth.sign_in import PAGE_BACK_PATH, PAGE_CLIENT, BrowserSignIn, Users
from smart_mcp_proxy.web.auth.sign_in_store import EndedSignIns, SignInTurns, open_store
from smart_mcp_proxy.web.auth.signed_tokens import AGAIN_S, SignedTokens, find_name
from smart_mcp_proxy.web.common.messages import TooLargeError, json_response, read_body
from smart_mcp_proxy.web.common.refusals import SHOWN_CHARS, guard_app, parse_address

# FastMCP logs what it raises with its traceback; we raise it on in words of our own.
logging.getLogger("fastmcp.server.auth.oidc_proxy").setLevel(logging.CRITICAL + 1)
PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; base-uri 'none'; frame-ancestors 'none'"
)
"""As the library has it in the pages themselves, and no frame around them, which only a header can say.

Not `form-action`: browsers apply it to the redirects after the form that consents, which end at the client's address.
"""
_FOR_PROGRAMS: Final = frozenset({"/register", "/token", "/revoke"})
"""Paths that programs ask; the others are opened in a browser."""
PAGE_LIMIT_BYTES: Final = 64 * 1024
"""Limit on a body, as on a head. A form or a token is a few kilobytes long."""
REGISTRATION_LIMIT_BYTES: Final = 16 * 1024
"""A name and some addresses; what it says is kept."""
REGISTRATIONS_PER_S: Final = 1 / 60
REGISTRATIONS_AT_ONCE: Final = 100
"""Clients register once in their life, and each is kept for a day at least: mostly in one or two kilobytes, in 90 at
most."""
SIGN_IN_PAGES_PER_S: Final = 1.0
SIGN_IN_PAGES_AT_ONCE: Final = 150
"""A sign-in takes three, and each may leave a file that is worth something for 15 minutes: so about a thousand are."""
ADDRESS_SHARE: Final = 5
"""Parts of which one address takes at most one: a single stranger leaves room for everybody else."""
ADDRESSES_REMEMBERED: Final = 1_024
"""Beyond it those are dropped that have their whole part again, which nobody notices."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PREFIX_BITS: Final = 64
"""Bits of an IPv6 address that count: whoever has one has all that begin like it. Source: RFC 4291, section 2.5.1."""


class MisleadingAddressError(errors.RequestError):
    """An address that a client registers does not lead where it seems to lead."""


_ERRORS: Final = {
    TooLargeError: "invalid_request",
    errors.RateLimitedError: "temporarily_unavailable",
    MisleadingAddressError: "invalid_redirect_uri",
}
"""Names of errors in OAuth. Source: RFC 6749, section 4.1.2.1; RFC 7591, section 3.2.2."""


async def open_oidc_login(
    settings: Settings, catalog: Catalog | None = None, profiles: Callable[[], Mapping[str, Profile]] = dict
) -> BrowserSignIn:
    """Open the sign-in of people.

    Args:
        settings: They ask for it (`is_sign_in_enabled`).
        catalog: Keeps sign-ins where gateways share its store; None for files.
        profiles: The configured profiles, of which some name groups.

    Raises:
        ConfigError: A setting cannot be used, the provider cannot be asked, or the data directory cannot be written.
    """
    users = Users(settings.oidc_users, settings.jwt_servers_claim)
    groups = Groups(settings, profiles, users.resolve_reach, is_bounded=False)
    return await to_thread.run_sync(_build_oidc_login, settings, catalog, groups)


def _build_oidc_login(settings: Settings, catalog: Catalog | None, groups: Groups) -> BrowserSignIn:
    assert settings.oidc_url and settings.oidc_client_id and settings.public_url
    base, secret = settings.public_url.rstrip("/"), settings.oidc_client_secret
    store, key = open_store(settings, catalog)
    has_others = settings.workers > 1 or (catalog is not None and catalog.is_shared)
    try:
        proxy = SignInProxy(
            config_url=settings.oidc_url,
            client_id=settings.oidc_client_id,
            client_secret=None if secret is None else secret.get_secret_value(),
            scopes=settings.oidc_scopes,
            algorithm=settings.jwt_algorithm,
            base_url=base,
            own_clients={PAGE_CLIENT: base + PAGE_BACK_PATH},
            store=store,
            signing_key=hmac.digest(key, b"tokens", "sha256"),
            is_let_in=lambda token: groups.find_reach(token) is not None,
            alone=SignInTurns(catalog if has_others else None).alone,
        )
        routes = proxy.get_routes("/mcp")
    except (httpx2.HTTPError, ValueError) as exc:
        reason = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
        raise errors.ConfigError(
            f"Nobody could sign in: the provider at MCPPROXY_OIDC_URL or MCPPROXY_PUBLIC_URL cannot be used: {reason}",
            hint="Check both addresses; other machines than this one need https.",
        ) from exc
    wall = time.time if catalog is None else catalog.now_s
    tokens = SignedTokens(proxy, groups.find_reach, wall=wall, role_of=groups.find_role)
    ended = EndedSignIns(catalog, tokens.forget)
    proxy.on_forgotten = ended.note
    proxy.on_granted = tokens.note_granted
    # Pages of every origin may take part in OAuth; a code is worth nothing without its PKCE verifier, and the form that
    # consents belongs to one browser.
    served = Starlette(routes=routes, exception_handlers={errors.CatalogError: answer_unavailable})
    pages = guard_app(BoundedPages(StandardAnswers(served)), settings, allowed_origins=("*",))
    operators = Users(settings.oidc_operators, settings.jwt_servers_claim)

    async def find_operator(token: str) -> Principal | None:
        found = await proxy.verify_token(token)
        who = None if found is None else tokens.judge(found)
        if found is None or who is None or operators.resolve_reach(found) is None:
            return who
        return Principal(who.id, who.reach, "admin", find_name(found.claims))

    paths = frozenset(route.path for route in routes)
    return BrowserSignIn(tokens, paths, pages, settings.oidc_scopes, find_operator, ended.follow, TIMED)


class StandardAnswers:
    """ASGI app that adds a content security policy, and refuses bad grants with 400.

    The library answers `invalid_grant` with 401, which is for a client that could not be authenticated.

    Args:
        app: Serves the pages.

    Source: RFC 6749, section 5.2; RFC 7636, section 4.6.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        held: Message | None = None

        async def correct(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.get("content-type", "").startswith("text/html"):
                    headers["content-security-policy"] = PAGE_POLICY
                if scope["path"] == "/token" and message["status"] == 401:
                    held = message
                    return
            elif held is not None:
                # The answer of the token endpoint is one message.
                start, held = held, None
                await send({**start, "status": 400} if _refuses_grant(message["body"]) else start)
            await send(message)

        await self._app(scope, receive, correct)


async def answer_unavailable(request: Request, exc: Exception) -> Response:
    """The answer while the store fails: a client that takes it for a refusal would throw its sign-in away.

    Source: RFC 6749, section 4.1.2.1; RFC 9110, section 15.6.4.
    """
    known_s = exc.retry_after_s if isinstance(exc, errors.ProxyError) else None
    wait_s = math.ceil(known_s or AGAIN_S)
    headers = {"retry-after": str(wait_s), "cache-control": "no-store"}
    if request.scope["path"] in _FOR_PROGRAMS:
        reason = exc.message if isinstance(exc, errors.UnverifiedError) else "The gateway's database does not answer."
        told = f"{reason} Try again in {wait_s} s: a new sign-in would not be kept."
        return JSONResponse({"error": "temporarily_unavailable", "error_description": told}, 503, headers)
    page = create_error_html(
        error_title="No sign-in at the moment",
        error_message=f"The gateway's database does not answer. Wait {wait_s} seconds and reload this page; "
        "if that does not help, begin the sign-in again.",
    )
    return HTMLResponse(page, 503, headers)


def _refuses_grant(body: bytes) -> bool:
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    return isinstance(answer, dict) and answer.get("error") == "invalid_grant"


class _Allowance:
    """Rate limit for one kind of write, in all and for each address."""

    def __init__(self, who: str, per_s: float, at_once: int) -> None:
        self._who = who
        self._all = TokenBucket(per_s, at_once)
        self._by_address: dict[int, TokenBucket] = {}

    def take(self, address: int | None, now_s: float) -> None:
        """Counts one.

        Raises:
            RateLimitedError: There were too many; nothing is counted then.
        """
        share = TokenBucket(self._all.rate_per_s / ADDRESS_SHARE, self._all.burst // ADDRESS_SHARE)
        own = None if address is None else self._by_address.get(address, share)
        own_wait_s = 0.0 if own is None else own.wait_s(now_s)
        if wait_s := max(own_wait_s, self._all.wait_s(now_s)):
            who = f"{self._who} from your address" if own_wait_s else self._who
            raise errors.RateLimitedError(
                f"Too many {who} lately.", hint=f"Try again in {math.ceil(wait_s)} s.", retry_after_s=wait_s
            )
        self._all.take(now_s)
        if address is not None and own is not None:
            own.take(now_s)
            self._by_address[address] = own
            if len(self._by_address) > ADDRESSES_REMEMBERED:
                self._by_address = {key: one for key, one in self._by_address.items() if not one.is_full(now_s)}


class BoundedPages:
    """Refuses requests that are too long or too many; hands the others on, their bodies whole.

    Args:
        app: Serves the pages.
        clock: Monotonic seconds.
    """

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        clients = _Allowance("clients have registered", REGISTRATIONS_PER_S, REGISTRATIONS_AT_ONCE)
        people = _Allowance("people have begun to sign in", SIGN_IN_PAGES_PER_S, SIGN_IN_PAGES_AT_ONCE)
        self._counted = {"/register": clients, "/authorize": people, "/consent": people}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        request = Request(scope, receive)
        try:
            limit_bytes = REGISTRATION_LIMIT_BYTES if scope["path"] == "/register" else PAGE_LIMIT_BYTES
            body = await read_body(request, limit_bytes, "Send less.")
            allowance = self._counted.get(scope["path"])
            if allowance is not None and request.method != "OPTIONS":  # a browser's question whether it may ask
                allowance.take(_parse_client_address(scope.get("client")), self._clock())
            if scope["path"] == "/register":
                _require_plain_addresses(body)
        except ClientDisconnect:
            return
        except (TooLargeError, errors.RateLimitedError, MisleadingAddressError) as exc:
            await _refuse(exc, scope, receive, send)
            return
        await self._app(scope, _again(body, receive), send)


def _require_plain_addresses(body: bytes) -> None:
    """Pass unless a registration has an address with user info, or control characters, which parsers drop.

    Raises:
        MisleadingAddressError: It has.
    """
    try:
        said = [str(address) for address in msgspec.json.decode(body)["redirect_uris"]]
        read = [AnyUrl(address) for address in said]
    except (ValueError, KeyError, TypeError, RecursionError):  # the library says so
        return
    for address, url in zip(said, read, strict=True):
        if url.username or url.password or _CONTROL.search(unquote(address)):
            raise MisleadingAddressError(
                f"{address[:SHOWN_CHARS]!r} in redirect_uris has a user name or control characters.",
                hint="Register an address without them.",
            )


def _parse_client_address(client: Any) -> int | None:
    """Address of a request's client; None for this machine, which clients of a local proxy share."""
    address = parse_address(client[0]) if client else None
    if address is None or address.is_loopback:
        return None
    return int(address) >> (_PREFIX_BITS if isinstance(address, IPv6Address) else 0)


def _again(body: bytes, receive: Receive) -> Receive:
    """Hands out a body that was read, then whatever comes behind it."""
    is_read = False

    async def receive_again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


async def _refuse(error: errors.ProxyError, scope: Scope, receive: Receive, send: Send) -> None:
    told = {"error": _ERRORS[type(error)], "error_description": str(error)}
    response = json_response(told, error)
    # As the pages have it themselves: clients that run in a browser would not see why.
    response.headers["access-control-allow-origin"] = "*"
    await response(scope, receive, send)
