"""What clients keep for servers between two rounds of a request."""

import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.calls.request_states import RequestStates, Subject

pytestmark = pytest.mark.anyio

SUBJECT = Subject("ann", "git", "tools/call", "commit", {"message": "x", "n": 1}, "hash-1")


class WallClock:
    """Seconds since the epoch, turned by hand."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


async def test_a_state_comes_back_as_the_server_gave_it(tmp_path: Path) -> None:
    """With the number of the round, and without a word of it readable on the way."""
    states = RequestStates(tmp_path, WallClock())
    for state in ("the server's own words", "", None):
        sealed = await states.seal(SUBJECT, state, 3)
        assert "server" not in sealed
        kept = await states.open(SUBJECT, sealed)
        assert (kept.state, kept.round) == (state, 3)


@pytest.mark.parametrize(
    "other",
    [
        {"principal": "bob"},
        {"server": "hub"},
        {"method": "prompts/get"},
        {"name": "push"},
        {"arguments": {"message": "y", "n": 1}},
        {"arguments": {"message": "x", "n": 1.0}},
        {"arguments": {}},
        {"definition": "hash-2"},
    ],
)
async def test_a_state_fits_nothing_but_the_request_it_was_given_for(tmp_path: Path, other: dict[str, object]) -> None:
    """Another caller, server, tool, argument or definition: refused, and not said why."""
    states = RequestStates(tmp_path, WallClock())
    sealed = await states.seal(SUBJECT, "s", 1)
    with pytest.raises(RequestError, match="not valid for this request") as failure:
        await states.open(replace(SUBJECT, **other), sealed)  # type: ignore[arg-type]
    assert (failure.value.error_code, failure.value.jsonrpc_code) == ("invalid_request_state", -32602)
    assert failure.value.delivery == "not_sent"


async def test_arguments_in_another_order_are_the_same_arguments(tmp_path: Path) -> None:
    """A client may write its object anew."""
    states = RequestStates(tmp_path, WallClock())
    sealed = await states.seal(SUBJECT, "s", 1)
    await states.open(replace(SUBJECT, arguments={"n": 1, "message": "x"}), sealed)


async def test_a_state_is_taken_for_ten_minutes(tmp_path: Path) -> None:
    """On the wall clock: another process may open it."""
    wall_clock = WallClock()
    states = RequestStates(tmp_path, wall_clock)
    sealed = await states.seal(SUBJECT, "s", 1)
    wall_clock.now_s += 599
    await states.open(SUBJECT, sealed)
    wall_clock.now_s += 1
    with pytest.raises(RequestError):
        await states.open(SUBJECT, sealed)


async def test_another_process_with_the_same_data_directory_opens_it_and_no_other(tmp_path: Path) -> None:
    """The key is a file of the owner's alone."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    sealed = await RequestStates(tmp_path / "one", WallClock()).seal(SUBJECT, "s", 1)
    assert (await RequestStates(tmp_path / "one", WallClock()).open(SUBJECT, sealed)).state == "s"
    with pytest.raises(RequestError):
        await RequestStates(tmp_path / "two", WallClock()).open(SUBJECT, sealed)
    assert stat.S_IMODE((tmp_path / "one" / "request-state.key").stat().st_mode) == 0o600


async def test_without_a_usable_key_file_states_hold_in_this_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log says so."""
    (tmp_path / "request-state.key").write_text("damaged")
    (tmp_path / "request-state.key").chmod(0o600)
    states = RequestStates(tmp_path, WallClock())
    sealed = await states.seal(SUBJECT, "s", 1)
    assert (await states.open(SUBJECT, sealed)).state == "s"
    assert "request-state.key is damaged" in caplog.text


@given(
    st.text(max_size=40),
    st.floats(0, 1, exclude_max=True),
    st.characters(codec="utf-8"),
    st.sampled_from(["replaced", "left out", "added", "something else"]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_changed_state_is_refused(tmp_path: Path, state: str, where: float, char: str, change: str) -> None:
    """One character replaced, left out or added; or anything else that was never sealed."""
    states = RequestStates(tmp_path, WallClock())
    sealed = await states.seal(SUBJECT, state, 1)
    before, after = sealed[: int(where * len(sealed))], sealed[int(where * len(sealed)) + 1 :]
    changes = {"replaced": before + char + after, "left out": before + after, "added": sealed + char}
    changed = changes.get(change, char)
    if changed != sealed:
        with pytest.raises(RequestError):
            await states.open(SUBJECT, changed)
