"""Sealed ids of tasks: each opens for its principal alone, as it was sealed, for a while."""

import asyncio
import string
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.errors import ProxyError, RequestError, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.calls.request_states import RequestStates
from smart_mcp_proxy.gateway.calls.tasks import SEAL_S, Tasks, demands_task, pause_s
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.upstream.protocol.session import rpc_error

texts = st.text(min_size=1, max_size=40)
names = st.text(string.ascii_letters, min_size=1, max_size=8)


class Clock:
    """Wall time, turned by hand."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def tasks_in(directory: Path, clock: Clock, run: str = "") -> Tasks:
    """The tasks of a gateway on this data directory."""
    return Tasks(RequestStates(directory), lambda server: run, CallLimits(is_cleaned=True), wall=clock)


def started(tasks: Tasks, task: str, server: str, tool: str, principal: str) -> str:
    raw = RawResult(msgspec.json.encode({"resultType": "task", "taskId": task, "status": "working"}))
    shown = msgspec.json.decode(asyncio.run(tasks.seal_task(raw, server, tool, principal)).text)
    sealed: str = shown["taskId"]
    return sealed


def refused(tasks: Tasks, sealed: str, principal: str) -> str:
    with pytest.raises(RequestError) as caught:
        asyncio.run(tasks.open(sealed, principal))
    assert caught.value.error_code == "task_not_found"
    return caught.value.message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    task=texts,
    server=names,
    tool=texts,
    principal=texts,
    other=texts,
    place=st.integers(min_value=0),
    char=st.characters(),
)
@pytest.mark.long  # many generated examples
def test_an_id_opens_for_its_principal_at_any_gateway(
    tmp_path: Path, task: str, server: str, tool: str, principal: str, other: str, place: int, char: str
) -> None:
    """At another gateway with the same key, unchanged; for anybody else, or changed anywhere, there is no such task."""
    clock = Clock()
    sealed = started(tasks_in(tmp_path, clock), task, server, tool, principal)
    elsewhere = tasks_in(tmp_path, clock)
    ref = asyncio.run(elsewhere.open(sealed, principal))
    assert (ref.task, ref.server, ref.tool) == (task, server, tool)
    assert task not in sealed or len(task) < 4
    said = refused(elsewhere, "v1.nothing", principal)
    if other != principal:
        assert refused(elsewhere, sealed, other) == said
    at = place % len(sealed)
    changed = sealed[:at] + char + sealed[at + 1 :]
    if changed != sealed:
        try:
            opened = asyncio.run(elsewhere.open(changed, principal))
        except RequestError as error:
            assert error.message == said
        else:  # base64 has bits to spare at its end: the same id in another spelling
            assert opened == ref


def test_an_id_is_not_taken_for_ever(tmp_path: Path) -> None:
    """Nor by a gateway with another key, nor for the next process of a server on stdio."""
    clock = Clock()
    tasks = tasks_in(tmp_path, clock, "first")
    sealed = started(tasks, "t", "pipe", "work", "a")
    assert asyncio.run(tasks.open(sealed, "a")).task == "t"
    assert "stdio" in refused(tasks_in(tmp_path, clock, "second"), sealed, "a")
    refused(tasks_in(tmp_path / "other", clock, "first"), sealed, "a")
    clock.now_s += SEAL_S
    refused(tasks, sealed, "a")


def test_a_request_state_is_no_id(tmp_path: Path) -> None:
    """Both are sealed with one key."""
    states = RequestStates(tmp_path)
    tasks = Tasks(states, lambda server: "", CallLimits(is_cleaned=True))
    state = asyncio.run(states.seal_text(b'{"binding":"x","until_s":9e9,"round":1,"state":null}'))
    refused(tasks, state, "a")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [(b"5000", 5), (b"0", 0.05), (b"-1", 0.05), (b"1e9", 30), (b"null", 1), (b'"x"', 1), (b"0.5", 0.05)],
)
def test_a_task_is_looked_at_as_often_as_its_server_says(said: bytes, seconds: float) -> None:
    """Within bounds; what is no number says nothing."""
    assert pause_s({"pollIntervalMs": msgspec.Raw(said)}) == seconds


def test_a_task_is_demanded_by_one_error_alone() -> None:
    """That of a capability which is missing, and no other one than tasks."""
    tasks, other = "io.modelcontextprotocol/tasks", "com.example/x"

    def demanded(code: int, *extensions: str) -> bool:
        required = {"requiredCapabilities": {"extensions": {key: {} for key in extensions}}}
        return demands_task(rpc_error("s", "tools/call", code, "no", required))

    assert demanded(-32021, tasks)
    assert not any([demanded(-32021, tasks, other), demanded(-32021, other), demanded(-32602, tasks), demanded(-32021)])
    errors: list[ProxyError] = [UpstreamTimeoutError("x"), RequestError("x"), UpstreamError("x")]
    assert not any(map(demands_task, errors))
