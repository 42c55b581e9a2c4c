"""What servers ask of clients in the middle of a request: judged, sealed, and asked of older clients."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gateway_fakes import config
from mcp_types import CLIENT_CAPABILITIES_META_KEY

from smart_mcp_proxy.errors import ProxyError, RefusedError, RequestError
from smart_mcp_proxy.gateway.calls.inputs import ANSWER_S, MAX_ROUNDS, InputRounds, Round
from smart_mcp_proxy.gateway.calls.request_states import RequestStates, Subject
from smart_mcp_proxy.models import ClientInput
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import secrets_hidden

pytestmark = pytest.mark.anyio

SUBJECT = Subject("ann", "alpha", "tools/call", "t", {}, "h")
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
FORM = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": SCHEMA}}
URL = {"method": "elicitation/create", "params": {"mode": "url", "message": "Go", "url": "https://a.example"}}
ROOTS = {"method": "roots/list"}
ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}


@pytest.fixture
def inputs(tmp_path: Path) -> InputRounds:
    servers = {"alpha": config("alpha", input_requests=True), "beta": config("beta")}
    return InputRounds(RequestStates(tmp_path), servers, is_cleaned=True)


def question(state: str | None = "s", **requests: Any) -> bytes:
    result: dict[str, Any] = {"resultType": "input_required", "odd": [1]}
    if requests:
        result["inputRequests"] = requests
    if state is not None:
        result["requestState"] = state
    return json.dumps(result).encode()


async def asked(inputs: InputRounds, raw: bytes, round: Round | None) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(
        (await inputs.seal_questions(RawResult(raw), "alpha", "tools/call", round)).text
    )
    return result


async def test_a_server_that_may_ask_is_told_what_the_client_can_be_asked(inputs: InputRounds) -> None:
    """In that one request; a server of the handshake era, or one that may not ask, is told nothing."""
    first = await inputs.begin(SUBJECT, ClientInput(ALL))
    params = {"name": "t", "_meta": {"a": 1}}
    declared = ALL | {"roots": {}}
    assert first.params(params, "modern") == {"name": "t", "_meta": {"a": 1, CLIENT_CAPABILITIES_META_KEY: declared}}
    assert first.params(params, "handshake") == params
    other = await inputs.begin(Subject("ann", "beta", "tools/call", "t", {}, "h"), ClientInput(ALL))
    assert other.params(params, "modern") == params


async def test_a_second_round_brings_the_servers_own_state_and_the_answers(inputs: InputRounds) -> None:
    """Whatever the client was given in the place of the state; the rest of the server's result is as it sent it."""
    first = await inputs.begin(SUBJECT, ClientInput(ALL))
    shown = await asked(inputs, question("the server's own", who=FORM), first)
    assert shown["odd"] == [1]
    assert shown["requestState"] != "the server's own"
    answers = {"who": {"action": "accept", "content": {"name": "Ann"}}}
    second = await inputs.begin(SUBJECT, ClientInput(ALL, responses=answers, state=shown["requestState"]))
    params = second.params({}, "modern")
    assert (params["requestState"], params["inputResponses"]) == ("the server's own", answers)
    assert second.number == 2


async def test_a_server_without_a_state_gets_none_back(inputs: InputRounds) -> None:
    """Though the client was given one; and a question may also be a state alone."""
    first = await inputs.begin(SUBJECT, ClientInput(ALL))
    shown = await asked(inputs, question(None, who=FORM), first)
    second = await inputs.begin(SUBJECT, ClientInput(ALL, responses={}, state=shown["requestState"]))
    assert "requestState" not in second.params({}, "modern")
    assert "inputRequests" not in await asked(inputs, question("come back"), first)
    null = b'{"resultType":"input_required","inputRequests":null,"requestState":"come back"}'
    assert "inputRequests" not in await asked(inputs, null, first)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (question(None), "says that it needs input, and not which"),
        (b'{"resultType":"input_required","inputRequests":7}', "no object"),
        (b'{"resultType":"input_required","inputRequests":[],"requestState":"s"}', "no object"),
        (b'{"resultType":"input_required","inputRequests":"","requestState":"s"}', "no object"),
        (b'{"resultType":"input_required","inputRequests":{},"requestState":7}', "cannot be read"),
        (b'{"resultType":"task"}', "not a complete result"),
        (b"[]", "not a complete result"),
        (question("x" * (1 << 20)), "of which 1,048,576 are passed on"),
        (question(who={"method": "tools/call", "params": {}}), "in a form that the protocol does not know"),
        (question(who=FORM | {"params": {"message": "m", "requestedSchema": {"properties": {"pin": {}}}}}), "no form"),
    ],
)
async def test_what_is_no_proper_question_is_an_error(inputs: InputRounds, raw: bytes, words: str) -> None:
    """That says whose fault it is, and repeats nothing of what the server wrote."""
    with pytest.raises(ProxyError, match=words) as failure:
        await inputs.seal_questions(
            RawResult(raw), "alpha", "tools/call", await inputs.begin(SUBJECT, ClientInput(ALL))
        )
    assert failure.value.delivery in ("unknown", "executed")


async def test_a_question_that_nobody_can_be_asked_is_an_error_that_says_why(inputs: InputRounds) -> None:
    """The caller cannot be asked, did not declare it, or the server is not allowed to."""
    with pytest.raises(ProxyError, match="this caller cannot be asked") as failure:
        await inputs.seal_questions(RawResult(question(who=FORM)), "alpha", "tools/call", None)
    assert (failure.value.error_code, failure.value.delivery) == ("upstream_protocol", "unknown")
    shy = await inputs.begin(SUBJECT, ClientInput({"roots": {}}))
    with pytest.raises(ProxyError, match="asks for elicitation, which the client did not declare"):
        await inputs.seal_questions(RawResult(question(who=FORM)), "alpha", "tools/call", shy)
    with pytest.raises(ProxyError, match=r"which its user has not allowed it.*\"input_requests\": true"):
        await inputs.seal_questions(RawResult(question(who=FORM)), "beta", "tools/call", None)


async def test_a_server_that_may_not_ask_is_sent_no_answers(inputs: InputRounds) -> None:
    """An answer that nobody asked for is not forwarded either."""
    for input in (ClientInput({}, responses={}), ClientInput({}, state="x"), ClientInput({}, pending=b"{}")):
        with pytest.raises(RequestError, match="may not ask for input"):
            await inputs.begin(Subject("ann", "beta", "tools/call", "t", {}, "h"), input)


async def test_a_server_asks_ten_times_at_most(inputs: InputRounds) -> None:
    """In one call; the count travels with the state."""
    input = ClientInput(ALL)
    for _ in range(MAX_ROUNDS):
        shown = await asked(inputs, question(who=FORM), await inputs.begin(SUBJECT, input))
        input = ClientInput(ALL, responses={}, state=shown["requestState"])
    with pytest.raises(ProxyError, match="for the 11th time"):
        await asked(inputs, question(who=FORM), await inputs.begin(SUBJECT, input))


async def test_questions_lose_what_steers_a_terminal(inputs: InputRounds) -> None:
    """The server's own state does not: nobody reads it."""
    form = FORM | {"params": FORM["params"] | {"message": "\x1b[2JWho\u202e?"}}  # type: ignore[operator]
    first = await inputs.begin(SUBJECT, ClientInput(ALL))
    shown = await asked(inputs, question("\x1b[2J", who=form), first)
    assert shown["inputRequests"]["who"]["params"]["message"] == "Server 'alpha' asks: Who?"
    second = await inputs.begin(SUBJECT, ClientInput(ALL, state=shown["requestState"]))
    assert second.params({}, "modern")["requestState"] == "\x1b[2J"


async def test_questions_do_not_show_what_the_server_was_trusted_with(inputs: InputRounds) -> None:
    """Words are hidden; where that would change the answers, nothing is asked."""
    first = await inputs.begin(SUBJECT, ClientInput(ALL))
    with secrets_hidden(["geheim-1234"]):
        titled = {"type": "string", "title": "For geheim-1234"}
        schema = {"type": "object", "properties": {"name": titled}}
        form = FORM | {"params": {"message": "With geheim-1234?", "requestedSchema": schema}}
        shown = await asked(inputs, question(who=form), first)
        url = URL | {"params": {"mode": "url", "message": "Go", "url": "https://a.example/geheim-1234"}}
        with pytest.raises(RefusedError, match="an address") as refused:
            await asked(inputs, question(who=url), first)
    params = shown["inputRequests"]["who"]["params"]
    assert params["message"] == "Server 'alpha' asks: With [hidden]?"
    assert params["requestedSchema"]["properties"]["name"]["title"] == "For [hidden]"
    assert (refused.value.error_code, refused.value.delivery) == ("secret_shown", "unknown")


async def test_a_question_is_asked_under_no_key_that_tells_a_secret(inputs: InputRounds) -> None:
    """Nor does its error say which."""
    first = await inputs.begin(SUBJECT, ClientInput(ALL))
    with secrets_hidden(["geheim-1234"]), pytest.raises(RefusedError, match="the key of a question") as refused:
        await asked(inputs, question(**{"geheim-1234": FORM}), first)
    assert refused.value.error_code == "secret_shown" and "geheim" not in str(refused.value)


async def test_an_older_client_is_asked_one_question_after_the_other(inputs: InputRounds) -> None:
    """Within one deadline for all of them; its answers go out like those of a modern one."""
    heard: list[tuple[str, Mapping[str, Any], float]] = []

    async def ask(method: str, params: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        heard.append((method, params, timeout_s))
        return {"answer": len(heard)}

    shown = await inputs.seal_questions(
        RawResult(question(a=FORM, b=URL, c=ROOTS)),
        "alpha",
        "tools/call",
        await inputs.begin(SUBJECT, ClientInput(ALL)),
    )
    second = await inputs.begin(SUBJECT, ClientInput(ALL, ask=ask, pending=shown.text))
    params = second.params({}, "modern")
    assert params["inputResponses"] == {"a": {"answer": 1}, "b": {"answer": 2}, "c": {"answer": 3}}
    assert params["requestState"] == "s"
    assert [method for method, _, _ in heard] == ["elicitation/create", "elicitation/create", "roots/list"]
    assert "elicitationId" in heard[1][1] and "elicitationId" not in heard[0][1]
    assert all(0 < timeout_s <= ANSWER_S for _, _, timeout_s in heard)


async def test_an_older_client_that_does_not_answer_ends_the_call(inputs: InputRounds) -> None:
    """With its own error."""

    async def ask(method: str, params: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        raise RequestError("The client did not answer.", code="input_timeout", delivery="unknown")

    shown = await inputs.seal_questions(
        RawResult(question(a=FORM)), "alpha", "tools/call", await inputs.begin(SUBJECT, ClientInput(ALL))
    )
    with pytest.raises(RequestError, match="did not answer"):
        await inputs.begin(SUBJECT, ClientInput(ALL, ask=ask, pending=shown.text))


async def test_what_may_ask_follows_the_configuration(inputs: InputRounds) -> None:
    """From the next call on."""
    assert inputs.is_on
    inputs.configure({"alpha": config("alpha")})
    assert not inputs.is_on
    assert (await inputs.begin(SUBJECT, ClientInput(ALL))).declared == {}


async def test_what_stands_beside_the_questions_is_cleaned_and_hides_what_its_server_was_trusted_with(
    inputs: InputRounds,
) -> None:
    """Like a result; a secret that is only whole once it is cleaned, too. The server's own state is not looked at."""
    raw = json.loads(question("come\x1b[1m back", who=FORM))
    raw |= {"content": [{"type": "text", "text": "red\x1b[31m geh\x1b[0meim-1234"}], "_meta": {"geheim-1234": 1.5}}
    first = await inputs.begin(SUBJECT, ClientInput(ALL))
    with secrets_hidden(["geheim-1234"]):
        shown = await asked(inputs, json.dumps(raw).encode(), first)
    assert shown["content"] == [{"type": "text", "text": "red [hidden]"}]
    assert shown["_meta"] == {"[hidden]": 1.5}
    assert (shown["resultType"], shown["odd"], list(shown["inputRequests"])) == ("input_required", [1], ["who"])
    again = await inputs.begin(SUBJECT, ClientInput(ALL, responses={}, state=shown["requestState"]))
    assert again.kept is not None and again.kept.state == "come\x1b[1m back"
