"""Token exchange: the token that a person came with is traded for one of theirs at a server.

Where the identity provider gives tokens for itself alone, it gives an assertion of who the person is (ID-JAG), which
the server's authorization server takes for the token.
"""

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
from smart_mcp_proxy.servers.oauth import ACCESS_TOKEN
from smart_mcp_proxy.telemetry import secrets_hidden
from smart_mcp_proxy.upstream.oauth.auth_http import AuthHttp, error_code, parse_json_members

_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
_USABLE_TYPES: Final = (ACCESS_TOKEN, "urn:ietf:params:oauth:token-type:jwt")
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


class _Traded(msgspec.Struct, frozen=True):
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
        options, scope = self.options, {"scope": self.options.scope} if self.options.scope else {}
        form = {"grant_type": _GRANT, **scope}
        form |= {"subject_token": subject, "subject_token_type": options.subject_token_type}
        if not options.issuer:
            form |= {"audience": options.audience, "requested_token_type": ACCESS_TOKEN}
            return self._judge(await self._ask("", self.http, form), {subject})
        form |= {"audience": options.issuer, "resource": options.audience, "requested_token_type": _ID_JAG}
        assertion = self._judge_assertion(await self._ask("", self.http, form), subject)
        form = {"grant_type": _JWT_BEARER, "assertion": assertion, **scope}
        answer = await self._ask("issuer_", self.http.beside(options.issuer_token_url), form)
        return self._judge({**answer, "issued_token_type": ACCESS_TOKEN}, {subject, assertion}, "issuer_")

    async def _ask(self, place: str, http: AuthHttp, form: dict[str, str]) -> dict[str, Any]:
        """Ask a token endpoint: the answer's members.

        Args:
            place: How its keys in the options begin.
            http: Asks it.
            form: What is asked; the client is added.

        Raises:
            UpstreamAuthError: It refused.
            UpstreamError: It failed, or there is no answer.
        """
        url, client_id, secret = (
            getattr(self.options, f"{place}{key}") for key in ("token_url", "client_id", "client_secret")
        )
        headers = {}
        if secret:
            pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif client_id:
            form = form | {"client_id": client_id}
        response = await http.send(httpx2.Request("POST", url, data=form, headers=headers))
        if response.status_code != 200:
            code = error_code(response)
            is_refused = bool(code) and response.status_code < 500 and response.status_code != 429
            raise self._fail(f"it refused ({code or f'HTTP {response.status_code}'})", place, is_final=is_refused)
        return parse_json_members(response)

    def _judge_assertion(self, answer: dict[str, Any], subject: str) -> str:
        """The assertion in an answer, if it is one for the server's authorization server.

        Raises:
            UpstreamError: It is not.

        Source: https://datatracker.ietf.org/doc/draft-ietf-oauth-identity-assertion-authz-grant/
        """
        assertion = self._read_token(answer, {subject})
        if answer.get("issued_token_type") != _ID_JAG:
            raise self._fail("its answer holds no assertion of who the person is (ID-JAG)")
        claims = _read_claims(assertion)
        if claims is None or claims.get("aud") not in (self.options.issuer, [self.options.issuer]):
            raise self._fail("the assertion is for another authorization server than 'oauth.exchange.issuer' names")
        return assertion

    def _read_token(self, answer: dict[str, Any], sent: set[str], place: str = "") -> str:
        """The token in an answer; none of those that were sent."""
        token = answer.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            raise self._fail("its answer holds no token", place)
        if any(hmac.compare_digest(token.encode(), each.encode()) for each in sent):
            reason = "it gave back the token that the person came with, or the assertion; neither is for the server"
            raise self._fail(reason, place)
        return token

    def _judge(self, answer: dict[str, Any], sent: set[str], place: str = "") -> _Traded:
        """The token in an answer, if it is one for the server and for now.

        Raises:
            UpstreamError: It is not.

        Source: RFC 8693, section 2.2.1
        """
        token, lasts_s, now_s = self._read_token(answer, sent, place), answer.get("expires_in"), self.now()
        if str(answer.get("token_type")).lower() != "bearer" or answer.get("issued_token_type") not in _USABLE_TYPES:
            raise self._fail("its answer holds another kind of token", place)
        if lasts_s is not None and not _is_time(lasts_s):
            raise self._fail("its answer says in no number how long the token lasts", place)
        ends_s = now_s + (_UNSAID_S if lasts_s is None else lasts_s)
        claims = _read_claims(token)
        if claims is not None:
            audience = claims.get("aud")
            if self.options.audience not in (audience if isinstance(audience, list) else [audience]):
                raise self._fail("the token is for another audience than 'oauth.exchange.audience' names", place)
            ends_s = self._judge_times(claims, ends_s, now_s, place)
        if ends_s <= now_s:
            raise self._fail("the token has run out already", place)
        return _Traded(token, now_s, max(now_s + (ends_s - now_s) / 2, ends_s - _AHEAD_S))

    def _judge_times(self, claims: dict[str, Any], ends_s: float, now_s: float, place: str) -> float:
        """Judge when a token ends by its own claims; both clocks have to agree on about the time."""
        for name in ("exp", "nbf", "iat"):
            at_s = claims.get(name)
            if at_s is None:
                continue
            if not _is_time(at_s):
                raise self._fail(f"the token's '{name}' is no time", place)
            off_s = now_s - at_s if name == "exp" else at_s - now_s
            if off_s > (0.0 if name == "exp" else _SKEW_S):
                when = "ended" if name == "exp" else "begins"
                side = "ago" if name == "exp" else "from now"
                raise self._fail(
                    f"by this machine's clock the token {when} {off_s:.0f} s {side}: compare both clocks", place
                )
            if name == "exp":
                ends_s = min(ends_s, at_s)
        return ends_s

    def _fail(self, reason: str, place: str = "", *, is_final: bool = False) -> UpstreamError:
        kind = UpstreamAuthError if is_final else UpstreamError
        return kind(
            f"Server '{self.config.name}': the token exchange at 'oauth.exchange.{place}token_url' brought "
            f"nothing: {reason}.",
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
