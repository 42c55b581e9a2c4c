"""OAuth flows of the MCP SDK, with every request sent through `AuthHttp`."""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    issuers_match,
)
from mcp.shared.auth import OAuthMetadata
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.names import login_hint, shell_word
from smart_mcp_proxy.servers import ServerConfig, read_oauth
from smart_mcp_proxy.telemetry import printable
from smart_mcp_proxy.upstream.oauth.auth_http import AuthHttp, error_code, parse_json_members
from smart_mcp_proxy.upstream.oauth.auth_proofs import Proofs, send_with_proof, wants_proofs
from smart_mcp_proxy.upstream.oauth.auth_provider import (
    Browser,
    Memory,
    build_configured_client,
    build_sign_in_record,
    person_provider,
    program_provider,
    provider_after,
    with_resource,
)
from smart_mcp_proxy.upstream.oauth.auth_store import EndedSignInError, SignIn

_MOST_SERVERS: Final = 5
"""Servers that are tried of those that a resource names."""
_SERVERS: Final = "authorization_servers"

_REASON_CHARS: Final = 200
_FAILURES: Final = (OAuthFlowError, OAuthRegistrationError, OAuthTokenError, ValueError)
"""Errors that the SDK raises; ValueError where an answer is not what it should be."""

_TOKEN_HINT: Final = "If it takes a token instead, put that into 'headers' of its entry."
_REFUSALS: Final = frozenset(
    [
        *("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type"),
        *("invalid_scope", "access_denied", "login_required", "interaction_required", "consent_required"),
    ]
)
"""Codes by which an authorization server refuses, with any status.
Source: RFC 6749, sections 4.1.2.1 and 5.2; https://openid.net/specs/openid-connect-core-1_0.html"""
_FORM: Final = "application/x-www-form-urlencoded"
"""Type of a request for tokens; a registration is JSON. Source: RFC 6749, section 4.1.3; RFC 7591, section 3.1."""
_CLIENT_REFUSALS: Final = frozenset(["invalid_client", "unauthorized_client"])
_PLACES_OF_OLD: Final = {"authorization": "authorize", "token": "token", "registration": "register"}

# The SDK logs what it raises with its traceback; we raise it on in words of our own.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)


class SignInFlow:
    """Signs in to one server, renews what that brought, and gives it back.

    Args:
        config: The server, expanded; its `oauth` is set.
        http: Asks the authorization server.
        now: Seconds since the epoch: expiry is stored, and shared between processes.
        hint: Where the person signs in; empty for the command of the gateway's own machine.
    """

    def __init__(
        self, config: ServerConfig, http: AuthHttp, now: Callable[[], float] = time.time, hint: str = ""
    ) -> None:
        self._hint = hint or login_hint(config.name)
        self._server = config.name
        self._url = config.url
        self._options = read_oauth(config.name, config.oauth or {})
        self._http = http
        self._now = now

    @property
    def needs_person(self) -> bool:
        """Whether signing in takes somebody in a browser."""
        return self._options.grant == "authorization_code"

    async def run_flow(self, browser: Browser | None, earlier: SignIn | None = None) -> SignIn:
        """A new sign-in: discovery, registration where no client is configured, consent, tokens.

        Args:
            browser: Asks the person; None for a grant that needs none.
            earlier: The sign-in before: what it lacked is asked for.

        Raises:
            UpstreamAuthError: It was refused, or what the server says of its sign-in must not be followed.
            UpstreamError: Somebody cannot be reached.
        """
        memory = Memory(None, build_configured_client(self._options))
        provider = self._first(memory, browser)
        probe = self._probe()
        tries: list[int] = []

        async def answer(request: httpx2.Request) -> httpx2.Response:
            if request is not probe:
                return await self._answer(provider, memory, request)
            send = partial(self._http.send, reads_body=False)
            response = await send_with_proof(memory.proofs if memory.is_proved else None, request, send)
            tries.append(response.status_code)
            if len(tries) > 1:
                return response
            memory.challenge = response.headers.get("www-authenticate", "")
            return self._challenge(response, earlier)

        await self._drive(provider, probe, answer)
        if memory.tokens is None or tries[-1] in (401, 403):
            raise self._build_flow_error(f"it refuses the token that it asked for (HTTP {tries[-1]})")
        return build_sign_in_record(provider.context, memory, self._now(), earlier)

    async def renew(self, held: SignIn | None) -> SignIn:
        """The sign-in that follows on `held`, without asking anybody.

        Raises:
            EndedSignInError: Nobody but a person can bring one.
            UpstreamAuthError: What the server says of its sign-in must not be followed.
            UpstreamError: The authorization server cannot be reached or has a failure; it may be tried again.
        """
        if not self.needs_person:
            return await self.run_flow(None, held)
        if held is None or not held.refresh_token:
            raise self.build_ended_error("Nobody is signed in" if held is None else "The sign-in has run out")
        memory = Memory(None, None)
        memory.proofs = Proofs(held.proof_key, self._now) if held.proof_key else None
        provider = self._after(held, memory)
        probe = self._probe()
        refused: list[UpstreamError] = []

        async def answer(request: httpx2.Request) -> httpx2.Response:
            if request is probe:  # the SDK goes on to the server, which need not be asked
                return httpx2.Response(204, request=request)
            response = await send_with_proof(memory.proofs, request, self._http.send)
            if response.status_code != 200:
                refused.append(self._not_renewed(response))
            return with_known_members(response, memory)

        await self._drive(provider, probe, answer)
        if refused:
            raise refused[0]
        if memory.tokens is None or memory.tokens.access_token == held.access_token:
            raise UpstreamError(
                f"Server '{self._server}': the answer to renewing its sign-in cannot be read.",
                hint=f"It is tried again. If it lasts: {login_hint(self._server)}",
            )
        renewed = build_sign_in_record(provider.context, memory, self._now(), held)
        return msgspec.structs.replace(renewed, since_s=held.since_s)

    async def revoke(self, held: SignIn) -> bool:
        """Whether the authorization server took back what it gave; False where it offers no such thing.

        Raises:
            UpstreamError: It cannot be reached, or would not.
        """
        context = self._after(held, Memory(None, None)).context
        endpoint = context.oauth_metadata and context.oauth_metadata.revocation_endpoint
        # A program without a secret has nothing to show there; its tokens end by themselves.
        if not endpoint or not (self.needs_person or self._options.client_secret):
            return False
        # Of the refresh token where there is one: the access tokens go with it. Source: RFC 7009, section 2.1.
        kind = "refresh_token" if held.refresh_token else "access_token"
        form = {"token": held.refresh_token or held.access_token, "token_type_hint": kind}
        # An empty secret is none, and servers on the MCP SDK insist on the field. Source: RFC 6749, section 2.3.1.
        form |= {"client_id": str(held.client.get("client_id", "")), "client_secret": ""}
        try:
            data, headers = context.prepare_token_auth(form, {})
        except OAuthTokenError as exc:
            raise self._build_flow_error(_summarize_error(exc)) from exc
        response = await self._http.send(httpx2.Request("POST", str(endpoint), data=data, headers=headers))
        if response.status_code >= 400:
            raise UpstreamError(
                f"{endpoint} answered with HTTP {response.status_code}.",
                hint="Whoever runs it can end the sign-in there.",
            )
        return True

    # --- the SDK's side

    async def _drive(
        self,
        provider: OAuthClientProvider,
        probe: httpx2.Request,
        answer: Callable[[httpx2.Request], Awaitable[httpx2.Response]],
    ) -> None:
        """Lets the SDK ask until it has what it wants."""
        flow = provider.async_auth_flow(probe)
        try:
            request = await anext(flow)
            while True:
                request = await flow.asend(await answer(request))
        except StopAsyncIteration:
            return
        except _FAILURES as exc:
            raise self._build_flow_error(_summarize_error(exc)) from exc
        finally:
            await flow.aclose()

    def _first(self, memory: Memory, browser: Browser | None) -> OAuthClientProvider:
        if browser is not None:
            return person_provider(self._url, self._options, memory, browser, self._http.check)
        provider = program_provider(self._server, self._url, self._options, memory, self._http, self._now)
        return with_resource(provider, self._options.resource)

    def _after(self, held: SignIn, memory: Memory) -> OAuthClientProvider:
        try:
            return provider_after(self._url, self._options, memory, held)
        except ValueError as exc:
            raise self.build_ended_error("The stored sign-in cannot be read") from exc

    # --- questions and answers

    def _probe(self) -> httpx2.Request:
        """A harmless request to the server, which it will refuse with where to sign in."""
        return httpx2.Request(
            "POST",
            self._url,
            json={"jsonrpc": "2.0", "id": 1, "method": "ping"},
            headers={
                "accept": "application/json, text/event-stream",
                # Makes the SDK name the resource in every request (RFC 8707).
                MCP_PROTOCOL_VERSION_HEADER: LATEST_HANDSHAKE_VERSION,
            },
        )

    def _challenge(self, response: httpx2.Response, earlier: SignIn | None) -> httpx2.Response:
        """Shape the server's refusal for the SDK: a person who signs in wants the flow in any case.

        Configured scopes go before those that the server asks for, and a challenge is where the SDK looks first. What
        a request has failed for comes on top of what there is.

        Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
        """
        scope = " ".join(self._options.scopes) or extract_scope_from_www_auth(response) or ""
        if earlier is not None and earlier.wanted_scope:
            scope = " ".join(dict.fromkeys(f"{scope or earlier.scope} {earlier.wanted_scope}".split()))
        named = {"scope": scope, "resource_metadata": extract_resource_metadata_from_www_auth(response)}
        asked = "Bearer " + ", ".join(f'{name}="{value}"' for name, value in named.items() if value)
        return httpx2.Response(401, headers={"www-authenticate": asked}, request=response.request)

    async def _answer(self, provider: OAuthClientProvider, memory: Memory, request: httpx2.Request) -> httpx2.Response:
        response = await self._send_checked(provider, memory, request)
        if request.method == "GET":
            named = provider.context.auth_server_url
            # Where a server of 2025-03-26 has it.
            is_of_old = request.url.path == "/.well-known/oauth-authorization-server"
            if named is None and is_of_old and 300 <= response.status_code < 500:
                memory.is_without_metadata = True
                response = httpx2.Response(200, json=_places_of_old(request), request=request)
            if named is None:
                response = await with_working_server(response, self._url, self._options.issuer, self._http.send)
            return _with_issuer_as(named, response, memory)
        if memory.is_without_metadata and response.status_code in (404, 405):
            raise self._build_flow_error(
                f"it does not say where to sign in (no metadata of it, and no {request.url.path})", _TOKEN_HINT
            )
        if self._options.client_id and (code := error_code(response)) in _CLIENT_REFUSALS:
            raise self._client_refused(code)
        if request.headers.get("content-type") != _FORM and response.status_code >= 400:
            raise self._not_registered(response)
        return response

    async def _send_checked(
        self, provider: OAuthClientProvider, memory: Memory, request: httpx2.Request
    ) -> httpx2.Response:
        if request.method == "GET":
            return await self._http.send(request)
        context = provider.context  # from here on something of ours is sent
        self._check_metadata(context.oauth_metadata)
        if request.headers.get("content-type") != _FORM:
            return await self._http.send(request)
        if wants_proofs(memory.challenge, context.protected_resource_metadata, memory.proof_algorithms):
            memory.proofs = Proofs(now=self._now)
        return with_known_members(await send_with_proof(memory.proofs, request, self._http.send), memory)

    def _check_metadata(self, metadata: OAuthMetadata | None) -> None:
        if metadata is None:
            raise self._build_flow_error(
                "it does not say where to sign in (no authorization server metadata)", _TOKEN_HINT
            )
        if self._options.issuer and str(metadata.issuer).rstrip("/") != self._options.issuer.rstrip("/"):
            raise self._build_flow_error(f"it leads to {metadata.issuer}, not to the configured issuer")
        if self.needs_person and "S256" not in (metadata.code_challenge_methods_supported or ()):
            # Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
            raise self._build_flow_error(f"{metadata.issuer} does not offer PKCE with S256")

    def _not_renewed(self, response: httpx2.Response) -> UpstreamError:
        """The error for a refresh that was not answered with a token."""
        status, code = response.status_code, error_code(response)
        # A page that stands in for it (a redirect, "not found", a firewall) says nothing of the sign-in.
        if status >= 500 or not (status in (400, 401) or code in _REFUSALS):
            return UpstreamError(
                f"Server '{self._server}': its sign-in cannot be renewed at present (HTTP {status}).",
                hint=f"It is tried again. If it lasts: {login_hint(self._server)}",
            )
        if self._options.client_id and code in _CLIENT_REFUSALS:
            return self._client_refused(code)
        return self.build_ended_error(f"The sign-in was not renewed ({code or f'HTTP {status}'})")

    def _not_registered(self, response: httpx2.Response) -> UpstreamError:
        """The error for a registration that was refused; the same command would only be refused again."""
        status, members = response.status_code, parse_json_members(response)
        said = members.get("error_description") or members.get("error")
        words = (
            f"{printable(said)[:_REASON_CHARS].rstrip('.')}, HTTP {status}"
            if isinstance(said, str)
            else f"HTTP {status}"
        )
        patch = f"mcpproxy server patch {shell_word(self._server)} oauth.client_id=CLIENT_ID"
        by_hand = "put the id of one that its operator registers into the entry (oauth.client_id, oauth.client_secret)"
        if status >= 500 or status == 429:
            return UpstreamError(
                f"Server '{self._server}': its authorization server cannot register a client at present ({words}).",
                hint=f"Try again later, or {by_hand}: {patch}",
            )
        return UpstreamAuthError(
            f"Server '{self._server}': its authorization server registers no client by itself ({words}).",
            hint=f"{by_hand.capitalize()}: {patch}",
        )

    def _client_refused(self, code: str) -> EndedSignInError:
        hint = "Correct 'client_id' and its secret under 'oauth' in its entry."
        return EndedSignInError(
            f"Server '{self._server}': its authorization server does not accept the configured client_id "
            f"'{printable(self._options.client_id)}' ({code}).",
            hint=f"{hint} {login_hint(self._server)}" if self.needs_person else hint,
        )

    def build_ended_error(self, reason: str) -> EndedSignInError:
        """The error for a server that a person has to sign in to."""
        return EndedSignInError(f"{reason} at server '{self._server}'.", hint=self._hint)

    def _build_flow_error(self, reason: str, hint: str = "") -> UpstreamAuthError:
        return UpstreamAuthError(
            f"Server '{self._server}': the sign-in failed: {reason}.",
            hint=hint or (self._hint if self.needs_person else "Check 'oauth' in its entry."),
        )


def _with_issuer_as(named: str | None, response: httpx2.Response, memory: Memory) -> httpx2.Response:
    """Metadata with its root issuer written as the server wrote it, where only the last slash differs.

    Many servers add that slash to an issuer that has none. It is the same origin; the SDK compares letters. How the
    metadata itself has it is noted in `memory`, as are algorithms of proofs, which the SDK leaves out.
    """
    metadata = parse_json_members(response)
    issuer = metadata.get("issuer")
    if response.status_code != 200 or not isinstance(issuer, str):
        return response
    memory.issuer = issuer
    listed = metadata.get("dpop_signing_alg_values_supported")
    memory.proof_algorithms = listed if isinstance(listed, list) else None
    if named is None or issuer == named or not issuers_match(issuer, named):
        return response
    metadata["issuer"] = named
    return httpx2.Response(200, json=metadata, request=response.request)


def _places_of_old(request: httpx2.Request) -> dict[str, Any]:
    """Default metadata for a server without any: its origin with the paths of 2025-03-26.

    PKCE is required. Source: https://modelcontextprotocol.io/specification/2025-03-26/basic/authorization
    """
    origin = str(request.url.copy_with(raw_path=b""))
    endpoints = {f"{name}_endpoint": f"{origin}/{path}" for name, path in _PLACES_OF_OLD.items()}
    return {"issuer": origin, "code_challenge_methods_supported": ["S256"], **endpoints}


def _summarize_error(exc: Exception) -> str:
    """The first line of an error; some of it may be an answer's text."""
    lines = str(exc).splitlines()
    return printable(lines[0] if lines else type(exc).__name__)[:_REASON_CHARS].rstrip(".")


def with_known_members(response: httpx2.Response, memory: Memory) -> httpx2.Response:
    """Token response in the forms that the SDK knows; `memory` notes whether tokens are bound.

    Some servers give a lifetime with a fraction or as text, and scopes as a list. Source: RFC 6749, section 5.1.
    """
    answer = parse_json_members(response)
    memory.is_proved = memory.proofs is not None and str(answer.get("token_type")).lower() == "dpop"
    if "access_token" not in answer:
        return response
    known = {name: value for name, value in answer.items() if name not in ("expires_in", "scope")}
    if memory.is_proved:
        known["token_type"] = "Bearer"
    if (lifetime_s := _lifetime_s(answer.get("expires_in"))) is not None:
        known["expires_in"] = lifetime_s
    if (scope := _scope(answer.get("scope"))) is not None:
        known["scope"] = scope
    return response if known == answer else httpx2.Response(response.status_code, json=known, request=response.request)


def _lifetime_s(value: Any) -> int | None:
    """A lifetime in whole seconds, rounded down; None where none is said."""
    try:
        lifetime_s = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return math.floor(lifetime_s) if math.isfinite(lifetime_s) else None


def _scope(value: Any) -> Any:
    """Scopes with blanks between; None where none is said."""
    if isinstance(value, list) and all(isinstance(scope, str) for scope in value):
        return " ".join(filter(None, value)) or None
    return value


async def with_working_server(
    response: httpx2.Response,
    server_url: str,
    issuer: str,
    send: Callable[[httpx2.Request], Awaitable[httpx2.Response]],
) -> httpx2.Response:
    """Metadata of a resource with the authorization server that answers, where it names several.

    The SDK takes the first, also while that is down; the client chooses. Source: RFC 9728, section 7.6

    Args:
        response: To the request for the metadata.
        server_url: Address of the MCP server.
        issuer: The configured one, which goes before the others; empty for none.
        send: Asks; raises UpstreamError where there is no answer.
    """
    metadata = parse_json_members(response)
    named = metadata.get(_SERVERS)
    if response.status_code != 200 or not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        return response
    listed: Sequence[str] = [one for one in named if issuer and issuers_match(one, issuer)] or named
    if len(named) < 2:
        return response
    for one in listed[:_MOST_SERVERS]:
        if len(listed) == 1 or await _answers(one, server_url, send):
            return httpx2.Response(200, json=metadata | {_SERVERS: [one]}, request=response.request)
    return response


async def _answers(issuer: str, server_url: str, send: Callable[[httpx2.Request], Awaitable[httpx2.Response]]) -> bool:
    """Whether an authorization server gives its metadata at present."""
    for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, server_url):
        try:
            response = await send(httpx2.Request("GET", url))
        except (UpstreamError, httpx2.InvalidURL):
            return False
        if response.status_code == 200 and "issuer" in parse_json_members(response):
            return True
    return False
