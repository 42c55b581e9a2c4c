"""Questions of servers during a request: declared, judged, sealed, carried across the eras.

A server of the modern era that wants to know more answers with its questions; whoever called answers them by calling
again. A modern client does so itself. A client of the handshake era is asked over its own session, and the gateway
calls again for it. Either way the second call is one like the first: every gate is in front of it.
"""

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from mcp_types import CLIENT_CAPABILITIES_META_KEY

from smart_mcp_proxy.errors import ProxyError, RefusedError, RequestError, UpstreamError
from smart_mcp_proxy.gateway.calls.request_states import RequestStates, StatePayload, Subject
from smart_mcp_proxy.gateway.results.cleaning import clean, clean_message
from smart_mcp_proxy.gateway.results.results import INPUT_REQUIRED, read_facts
from smart_mcp_proxy.models import ClientInput, Era
from smart_mcp_proxy.policy.inputs import InputFault, input_fault, label_inputs, without_secrets
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import has_secret, redact

MAX_ROUNDS: Final = 10
"""Most rounds of questions in one request: the default of `input_required_max_rounds` in the SDK's client."""
ANSWER_S: Final = 300.0
"""Seconds that a client may take for the questions of one round: enough for a person to look something up."""
QUESTIONS_BYTES: Final = 1 << 20
"""Limit on one result with questions: a picture for the client's model has room in it."""
_ELICITATION_ID_BYTES: Final = 16


class Round(msgspec.Struct, frozen=True):
    """A round of a request whose client can be asked for input.

    Attributes:
        subject: The request.
        input: How its client can be asked; what it answered is in it.
        declared: What is declared of it to the server.
        kept: What the client handed back; None in the first round.
    """

    subject: Subject
    input: ClientInput
    declared: Mapping[str, Any]
    kept: StatePayload | None

    @property
    def number(self) -> int:
        """1 for the first."""
        return 1 if self.kept is None else self.kept.round + 1

    def params(self, params: Mapping[str, Any], era: Era) -> Mapping[str, Any]:
        """The request's params with what this round adds; servers of the handshake era know nothing of it."""
        if era == "handshake":
            return params
        more: dict[str, Any] = {}
        if self.declared:
            more["_meta"] = {**(params.get("_meta") or {}), CLIENT_CAPABILITIES_META_KEY: self.declared}
        if self.input.responses is not None:
            more["inputResponses"] = self.input.responses
        if self.kept is not None and self.kept.state is not None:
            more["requestState"] = self.kept.state
        return {**params, **more}


class InputRounds:
    """The questions of servers.

    Args:
        states: Seal what clients keep between two rounds.
        servers: The configured servers.
        is_cleaned: Whether what steers a terminal or hides from the eye is taken out of questions.

    Attributes:
        is_on: Whether any server may ask, or people may be asked to sign in at one.
    """

    def __init__(self, states: RequestStates, servers: Mapping[str, ServerConfig], *, is_cleaned: bool) -> None:
        self._states = states
        self._is_cleaned = is_cleaned
        self.is_on = False
        self._asking: frozenset[str] = frozenset()
        self.configure(servers)

    def configure(self, servers: Mapping[str, ServerConfig]) -> None:
        """Makes these the servers; those may ask that their user allows it."""
        self._asking = frozenset(name for name, config in servers.items() if config.input_requests)
        self.is_on = bool(self._asking) or any(config.is_personal for config in servers.values())

    async def begin(self, subject: Subject, client: ClientInput) -> Round:
        """The round that is to be sent next. A client of the handshake era is asked here what is pending.

        Raises:
            RequestError: What the client hands back does not belong to this request, it did not answer, or the server
                may not ask.
        """
        if subject.server not in self._asking:
            if client.responses is not None or client.state is not None or client.pending is not None:
                raise _not_allowed(subject.server)
            return Round(subject, client, {}, None)
        if client.pending is not None:
            client = await ask_client(client, client.pending)
        kept = await self._states.open(subject, client.state) if client.state is not None else None
        return Round(subject, client, _adapt_capabilities(client.capabilities), kept)

    async def seal_questions(self, raw: RawResult, server: str, method: str, sent: Round | None) -> RawResult:
        """The server's questions as the client gets them: judged, with the server's name, its state sealed.

        Args:
            raw: What the server answered, not a complete result.
            server: Configured name.
            method: What was asked of it.
            sent: What was sent; None where the caller cannot be asked.

        Raises:
            UpstreamError: It is no question, or one that this client cannot be asked.
            RefusedError: It asks for a secret.
        """
        facts = read_facts(raw)
        if facts is None or facts.resultType != INPUT_REQUIRED:
            raise build_incomplete_error(server, method)
        if sent is None or server not in self._asking:
            raise self._build_undeclared_error(server)
        if sent.number > MAX_ROUNDS:
            raise _fault(server, f"asks for input for the {sent.number}th time in one call")
        if raw.size_bytes > QUESTIONS_BYTES:
            raise _fault(
                server, f"asks for input with {raw.size_bytes:,} bytes, of which {QUESTIONS_BYTES:,} are passed on"
            )
        members, state = await asyncio.to_thread(self._validate_questions, raw.text, server, sent.declared)
        sealed = await self._states.seal(sent.subject, state, sent.number)
        return RawResult(msgspec.json.encode(members | {"requestState": sealed}))

    async def prepare_task_questions(self, asked: bytes, server: str, declared: Mapping[str, Any]) -> Mapping[str, Any]:
        """Questions of a task as its client gets them: judged, with the server's name.

        Args:
            asked: The `inputRequests` as JSON text.
            server: Configured name.
            declared: What the client declares that it can be asked for.

        Raises:
            UpstreamError: The server may not ask, or not for this.
            RefusedError: It asks for a secret.
        """
        if server not in self._asking:
            raise self._build_undeclared_error(server)
        members, _ = await asyncio.to_thread(
            self._validate_questions, b'{"inputRequests":' + asked + b"}", server, declared
        )
        requests: Mapping[str, Any] = members["inputRequests"]
        return requests

    async def answers(self, asked: bytes, server: str, sent: Round) -> Mapping[str, Any]:
        """A handshake-era client's answers to a task's questions; see `prepare_task_questions`."""
        shown = await self.prepare_task_questions(asked, server, sent.declared)
        pending = msgspec.json.encode({"inputRequests": shown, "requestState": None})
        return (await ask_client(sent.input, pending)).responses or {}

    def _validate_questions(
        self, raw: bytes, server: str, declared: Mapping[str, Any]
    ) -> tuple[dict[str, Any], str | None]:
        """The members of the result with its questions as a client gets them, and the server's own state."""
        try:
            members: dict[str, Any] = dict(_members.decode(raw))
            state = msgspec.json.decode(members.pop("requestState", b"null"), type=str | None)
            asked = members.pop("inputRequests", b"{}")
            if self._is_cleaned:
                asked = _members.decode(clean(b'{"asked":' + asked + b"}"))["asked"]
            requests = without_secrets(msgspec.json.decode(asked), redact)
            beside = clean_message(msgspec.json.decode(msgspec.json.encode(members)), is_cleaned=self._is_cleaned)
        except (msgspec.MsgspecError, RecursionError) as exc:
            raise _fault(server, "asks for input in a form that cannot be read") from exc
        requests = {} if requests is None else requests
        if not requests and state is None:
            raise _fault(server, "says that it needs input, and not which")
        if (fault := input_fault(requests, declared, has_secret)) is not None:
            raise _build_input_error(server, fault)
        return beside | ({"inputRequests": label_inputs(server, requests)} if requests else {}), state

    def _build_undeclared_error(self, server: str) -> ProxyError:
        """The error for questions of a server to which nothing was declared."""
        if server not in self._asking:
            return _fault(
                server,
                "asks for input, which its user has not allowed it",
                'Its user can, with "input_requests": true in the server\'s entry.',
            )
        return _fault(
            server,
            "asks for input, and this caller cannot be asked",
            "Only an MCP client that declares elicitation, sampling or roots can be, by a tool it calls directly or "
            "with call_tool_*: not the broker, REST, the command line, the proxy tool or a script.",
        )


async def ask_client(client: ClientInput, pending: bytes) -> ClientInput:
    """Ask a client of the handshake era, one question after the other, and return its answers."""
    questions = msgspec.json.decode(pending)
    assert client.ask is not None
    deadline_s = asyncio.get_running_loop().time() + ANSWER_S
    responses: dict[str, Any] = {}
    for key, question in questions.get("inputRequests", {}).items():
        left_s = max(0.0, deadline_s - asyncio.get_running_loop().time())
        responses[key] = await client.ask(question["method"], _adapt_question_params(question), left_s)
    return msgspec.structs.replace(client, responses=responses, state=questions["requestState"], pending=None)


def _adapt_question_params(question: Mapping[str, Any]) -> Mapping[str, Any]:
    """The params as the handshake era has them, where an elicitation by url must have an id."""
    params: Mapping[str, Any] = question.get("params") or {}
    if params.get("mode") == "url" and "elicitationId" not in params:
        return {**params, "elicitationId": secrets.token_hex(_ELICITATION_ID_BYTES)}
    return params


def _adapt_capabilities(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """The capabilities as the modern era writes them: it has no announcements of changed roots."""
    return {name: {} if name == "roots" else value for name, value in capabilities.items()}


def build_incomplete_error(server: str, method: str) -> UpstreamError:
    """The error for an answer that is neither a complete result nor a question."""
    return UpstreamError(
        f"Server '{server}' answered '{method}' with something that is not a complete result.",
        hint="Look at it with: mcpproxy server logs " + server,
        delivery="executed",
    )


def _fault(server: str, what: str, hint: str = "") -> UpstreamError:
    """The error for a server that asks what it may not: how far it has come with the call, nobody knows."""
    return UpstreamError(
        f"Server '{server}' {what}.",
        hint=hint or "The server is at fault: its user can report it, or take 'input_requests' out of its entry.",
        delivery="unknown",
        code="upstream_protocol",
    )


def _build_input_error(server: str, fault: InputFault) -> ProxyError:
    if fault.kind == "undeclared":
        return _fault(server, f"asks for {fault.what}, which the client did not declare")
    if fault.kind == "malformed":
        return _fault(server, f"asks for input in a form that the protocol does not know: {fault.what}")
    if fault.kind == "telling":
        return RefusedError(
            f"Server '{server}' asks for input and shows, in {fault.what}, what it was trusted with.",
            hint="Nothing lifts this. The server is at fault: no client is to see the values of 'env' and 'headers' in "
            "its entry.",
            delivery="unknown",
            code="secret_shown",
        )
    return RefusedError(
        f"Server '{server}' asks the user for {fault.what}, which no form may ask for.",
        hint="Nothing lifts this. A server is given its credentials in its entry ('env', 'headers', 'oauth') by its "
        "user; one that asks by url may send the user to its own page.",
        delivery="unknown",
        code="secret_asked",
    )


def _not_allowed(server: str) -> RequestError:
    return RequestError(
        f"Server '{server}' may not ask for input, so it is sent no answers.",
        hint='Its user can allow it, with "input_requests": true in the server\'s entry.',
        code="input_not_allowed",
    )


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
