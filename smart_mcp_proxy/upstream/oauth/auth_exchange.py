"""Token exchange: the token that a person came with is traded for one of theirs at a server."""

import asyncio
import base64
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx2
import msgspec

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.servers import ExchangeOptions, ServerConfig
from smart_mcp_proxy.telemetry import secrets_hidden
from smart_mcp_proxy.upstream.oauth.auth_http import AuthHttp, error_code, parse_json_members

_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:"
_USABLE_TYPES: Final = (f"{_TOKEN_TYPE}access_token", f"{_TOKEN_TYPE}jwt")
_AHEAD_S: Final = 30.0
"""A token is traded anew so long before its end: the request that it goes with takes its time."""
_UNSAID_S: Final = 300.0
"""For so long a token is used of which nobody says when it ends."""
_SKEW_S: Final = 60.0
"""By so much clocks may differ. Source: RFC 7519, section 4.1.5"""
_LATEST_S: Final = 253_402_300_799
"""The last second of the year 9999: what lies beyond is no date. Source: RFC 7519, section 2"""
_MOST_PEOPLE: Final = 1_024
_JUST_HAD_S: Final = 5.0
"""A token that is refused this soon after it was had would not be bettered by another."""


class SubjectTokens:
    """Verified tokens that people came with, in memory alone, where a server trades them.

    Attributes:
        is_wanted: Says whether any server does.
        on_new: Told who came with another token than before.
    """

    def __init__(self) -> None:
        self.is_wanted: Callable[[], bool] = lambda: False
        self.on_new: Callable[[str], None] = lambda person: None
        self._tokens: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<SubjectTokens of {len(self._tokens)} people>"

    def note(self, person: str, token: str, expires_s: float) -> None:
        """Keep the token with which a person came, which is good until then in seconds since the epoch."""
        if not self.is_wanted():
            self._tokens.clear()
            return
        former = self._tokens.pop(person, None)
        self._tokens[person] = token, expires_s
        if len(self._tokens) > _MOST_PEOPLE:
            self._tokens.popitem(last=False)
        if former is None or former[0] != token:
            self.on_new(person)

    def forget(self) -> None:
        """Keep none: one of them was given back."""
        self._tokens.clear()

    def find(self, person: str, now_s: float) -> str | None:
        """The person's token, None where they came with none or it has run out."""
        token, expires_s = self._tokens.get(person, ("", 0.0))
        return token if now_s < expires_s else None


@dataclass(frozen=True)
class _Traded:
    token: str
    obtained_s: float
    expires_s: float


@dataclass(eq=False, repr=False)
class ExchangedBearer:
    """Access token of one person at one server, traded for the token that they came with.

    Attributes:
        config: The server, expanded, with the person.
        options: How it is traded.
        http: Asks the token endpoint.
        find_subject: The person's own token; None where they came with none.
        now: Seconds since the epoch.
        on_lost: Never called: whether a person may go on is known with their next request.
        proofs: None; the token is bound to no key.
    """

    config: ServerConfig
    options: ExchangeOptions
    http: AuthHttp
    find_subject: Callable[[str, float], str | None]
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.on_lost: Callable[[UpstreamAuthError], None] = lambda _: None
        self.proofs = None
        self._held: _Traded | None = None
        self._hidden = ExitStack()
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ExchangedBearer {self.config.name}>"

    async def token(self) -> str:
        """The access token, good at this moment as far as is known.

        Raises:
            UpstreamAuthError: The person came with no token, or it was refused.
            UpstreamError: The token endpoint cannot be asked, or answers nothing that can be used.
        """
        async with self._lock:
            if self._held is None or self.now() >= self._held.expires_s:
                self._hold(await self._exchange())
            assert self._held is not None
            return self._held.token

    async def renew_refused_token(self, refused: str) -> bool:
        """Whether there may be another token than the one that the server refused just now."""
        held = self._held
        if held is not None and held.token == refused:
            if self.now() - held.obtained_s < _JUST_HAD_S:
                return False
            self._held = None
        return True

    async def want(self, scope: str) -> None:
        """Do nothing: what is asked for stands in the entry."""

    async def close(self) -> None:
        """Forget the token."""
        self._held = None
        self._hidden.close()

    def _hold(self, traded: _Traded) -> None:
        self._held = traded
        self._hidden.close()
        self._hidden.enter_context(secrets_hidden([traded.token]))

    async def _exchange(self) -> _Traded:
        subject = self.find_subject(self.config.person, self.now())
        if subject is None:
            raise UpstreamAuthError(
                f"Server '{self.config.name}' takes a token that is traded for a person's own, and whoever asks came "
                "with none that can be.",
                hint="Connect to the gateway with a token of the identity provider (MCPPROXY_JWT_... or "
                "MCPPROXY_OIDC_...), and anew when it has run out.",
            )
        response = await self.http.send(self._build_request(subject))
        answer, code = parse_json_members(response), error_code(response)
        if response.status_code != 200:
            is_refused = bool(code) and response.status_code < 500
            raise self._fail(f"it refused ({code or f'HTTP {response.status_code}'})", is_final=is_refused)
        return self._judge(answer, subject)

    def _build_request(self, subject: str) -> httpx2.Request:
        options = self.options
        form = {
            **{
                "grant_type": _GRANT,
                "audience": options.audience,
                "requested_token_type": f"{_TOKEN_TYPE}access_token",
            },
            **{"subject_token": subject, "subject_token_type": options.subject_token_type},
            **({"scope": options.scope} if options.scope else {}),
        }
        headers = {}
        if options.client_secret:
            pair = f"{quote(options.client_id, safe='')}:{quote(options.client_secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif options.client_id:
            form["client_id"] = options.client_id
        return httpx2.Request("POST", options.token_url, data=form, headers=headers)

    def _judge(self, answer: dict[str, Any], subject: str) -> _Traded:
        """The token in an answer, if it is one for the server and for now.

        Raises:
            UpstreamError: It is not.

        Source: RFC 8693, section 2.2.1
        """
        token, lasts_s, now_s = answer.get("access_token"), answer.get("expires_in"), self.now()
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            raise self._fail("its answer holds no token")
        if hmac.compare_digest(token.encode(), subject.encode()):
            raise self._fail("it gave back the token that the person came with, which is for the gateway alone")
        if str(answer.get("token_type")).lower() != "bearer" or answer.get("issued_token_type") not in _USABLE_TYPES:
            raise self._fail("its answer holds another kind of token")
        if lasts_s is not None and not _is_time(lasts_s):
            raise self._fail("its answer says in no number how long the token lasts")
        ends_s = now_s + (_UNSAID_S if lasts_s is None else lasts_s)
        claims = _read_claims(token)
        if claims is not None:
            audience = claims.get("aud")
            if self.options.audience not in (audience if isinstance(audience, list) else [audience]):
                raise self._fail("the token is for another audience than 'oauth.exchange.audience' names")
            ends_s = self._judge_times(claims, ends_s, now_s)
        if ends_s <= now_s:
            raise self._fail("the token has run out already")
        return _Traded(token, now_s, max(now_s + (ends_s - now_s) / 2, ends_s - _AHEAD_S))

    def _judge_times(self, claims: dict[str, Any], ends_s: float, now_s: float) -> float:
        """Judge when a token ends by its own claims; both clocks have to agree on about the time."""
        for name in ("exp", "nbf", "iat"):
            at_s = claims.get(name)
            if at_s is None:
                continue
            if not _is_time(at_s):
                raise self._fail(f"the token's '{name}' is no time")
            off_s = now_s - at_s if name == "exp" else at_s - now_s
            if off_s > (0.0 if name == "exp" else _SKEW_S):
                when = "ended" if name == "exp" else "begins"
                side = "ago" if name == "exp" else "from now"
                raise self._fail(f"by this machine's clock the token {when} {off_s:.0f} s {side}: compare both clocks")
            if name == "exp":
                ends_s = min(ends_s, at_s)
        return ends_s

    def _fail(self, reason: str, *, is_final: bool = False) -> UpstreamError:
        kind = UpstreamAuthError if is_final else UpstreamError
        return kind(
            f"Server '{self.config.name}': the token exchange at 'oauth.exchange.token_url' brought nothing: {reason}.",
            hint="Nothing was sent to the server. Check 'oauth.exchange' in its entry, and what the identity provider "
            "allows this client.",
        )


def _is_time(value: object) -> bool:
    """Whether a JSON value is a number of seconds that can be reckoned with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LATEST_S


def _read_claims(token: str) -> dict[str, Any] | None:
    """Read the claims of a JWT; None of an opaque token. Source: RFC 7519, section 3."""
    parts = token.split(".")
    if len(parts) != 3:  # head, claims, signature
        return None
    try:
        claims: Any = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None
