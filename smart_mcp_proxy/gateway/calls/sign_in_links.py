"""Links by which a person signs in while their call waits: elicitation by URL.

A client of the handshake era is asked over its session. A modern one gets the question as a result, and calls again.
The answer says no more than that the person opened the link: the call goes on once their connection stands.

Source: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from anyio import move_on_after

from smart_mcp_proxy.errors import RequestError, UpstreamAuthError
from smart_mcp_proxy.gateway.calls.exchange import RequestExchange
from smart_mcp_proxy.gateway.calls.inputs import ANSWER_S, ask_client
from smart_mcp_proxy.gateway.results.results import INPUT_REQUIRED
from smart_mcp_proxy.models import ClientInput
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream import Fleet

QUESTION: Final = "dev.smartmcpproxy/sign-in"
"""Key of the question, and of its answer."""


class SignInLinks(msgspec.Struct, frozen=True, eq=False):
    """Asks people to sign in during a call, at servers where each person has a sign-in of their own.

    Attributes:
        fleet: The servers' connections.
        build_link: The address at which the person of a configuration signs in; empty where there is none.
        wait_changed: Returns at the next change of a server's state.
    """

    fleet: Fleet
    build_link: Callable[[ServerConfig], str]
    wait_changed: Callable[[], Awaitable[None]]

    def can_ask(self, client: ClientInput) -> bool:
        """Whether a client shows links, and some server needs one."""
        offered = client.capabilities.get("elicitation")
        is_able = isinstance(offered, Mapping) and "url" in offered
        return is_able and any(upstream.is_personal for upstream in self.fleet.upstreams.values())

    async def run(
        self, exchange: RequestExchange, client: ClientInput, send: Callable[[RequestExchange], Awaitable[RawResult]]
    ) -> RawResult:
        """Send a request, and once more after its caller has signed in; raises what `send` does."""
        action = ""
        if client.responses is not None and QUESTION in client.responses:
            exchange, action = _take_answer(exchange, client)
            if action == "accept":
                await self._wait_signed_in(_find_server(exchange), exchange.caller.principal)
        try:
            return await send(exchange)
        except UpstreamAuthError:
            server = _find_server(exchange)
            link = "" if action else self._find_link(server, exchange.caller.principal)
            if not link:
                raise
            question = _build_question(server, link)
            if client.ask is None:
                return RawResult(msgspec.json.encode(question))
            if not await _is_accepted(client, question):
                raise
            await self._wait_signed_in(server, exchange.caller.principal)
        return await send(exchange.with_input(client))

    def _find_link(self, server: str, person: str) -> str:
        """The link for somebody who is not signed in; empty where nothing can be asked."""
        upstream = self.fleet.upstreams.get(server)
        if upstream is None or not upstream.is_personal:
            return ""
        theirs = self.fleet.find(server, person)
        is_missing = theirs is not None and not theirs.is_ready
        return self.build_link(msgspec.structs.replace(upstream.config, person=person)) if is_missing else ""

    async def _wait_signed_in(self, server: str, person: str) -> None:
        """Wait until a person's connection stands, as long as a client may take for an answer."""
        if not self._find_link(server, person):
            return
        with move_on_after(ANSWER_S):
            while (theirs := self.fleet.find(server, person)) is not None and not theirs.is_ready:
                await self.wait_changed()


def _find_server(exchange: RequestExchange) -> str:
    """The server of a request, by the name alone where it has listed this person nothing yet."""
    return exchange.server or ("" if exchange.call is None else exchange.call.name.partition(":")[0])


def _take_answer(exchange: RequestExchange, client: ClientInput) -> tuple[RequestExchange, str]:
    """The request without the answer to our question, and what the person did."""
    responses = dict(client.responses or {})
    answer = responses.pop(QUESTION)
    action = answer.get("action") if isinstance(answer, Mapping) else None
    rest = msgspec.structs.replace(client, responses=responses or None)
    return exchange.with_input(rest), action if isinstance(action, str) else "cancel"


async def _is_accepted(client: ClientInput, question: Mapping[str, Any]) -> bool:
    try:
        answered = await ask_client(client, msgspec.json.encode({**question, "requestState": None}))
    except RequestError:  # it does not answer: it is told the link in words
        return False
    answer = (answered.responses or {}).get(QUESTION)
    return isinstance(answer, Mapping) and answer.get("action") == "accept"


def _build_question(server: str, link: str) -> dict[str, Any]:
    message = f"Sign in at server '{server}': the call goes on when you have. The sign-in is yours alone."
    params = {"mode": "url", "message": message, "url": link}
    question = {"method": "elicitation/create", "params": params}
    return {"resultType": INPUT_REQUIRED, "inputRequests": {QUESTION: question}}
