"""Programs that are forks run as others do: their words, streams, folder, variables, limits and ends are their own."""

import os
import resource
import signal
from pathlib import Path

import pytest
from forked_programs import fork_program, run_forked, start_forked

from smart_mcp_proxy import __version__

pytestmark = [pytest.mark.anyio, pytest.mark.long]  # the process that forks takes seconds to load
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"test","version":"1"}}}\n'
)


def environ(folder: Path) -> dict[str, str]:
    """Variables of a gateway that has no servers."""
    settings = {"DATA_DIR": str(folder), "CONFIG_JSON": "{}", "SHARED": "false", "EMBEDDER": "BM25"}
    return {"PATH": os.environ["PATH"]} | {f"MCPPROXY_{name}": text for name, text in settings.items()}


def test_words_and_streams_are_its_own(tmp_path: Path) -> None:
    """As `mcpproxy` prints and ends; one does not see what another one was given."""
    assert run_forked("--version", cwd=tmp_path, env={}) == (0, f"mcpproxy {__version__}\n".encode(), b"")
    wrong = run_forked("nonsense", cwd=tmp_path, env={})
    assert (wrong.status, wrong.out) == (2, b"") and b"nonsense" in wrong.err
    (tmp_path / "mcp_config.json").write_text('{"mcpServers": {}}')
    seen = run_forked("config", "path", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert seen.status == 0 and str(tmp_path / "mcp_config.json").encode() in seen.out
    other = run_forked("config", "path", cwd=Path("/"), env=environ(tmp_path))
    assert str(tmp_path / "mcp_config.json").encode() not in other.out


async def test_one_with_pipes_answers_and_ends_by_its_input_or_a_signal(tmp_path: Path) -> None:
    """What it wrote last can still be read; whoever sends a signal to one that has ended is told."""
    with open(os.devnull, "wb") as nothing:
        first = await start_forked("serve", env=environ(tmp_path), stderr=nothing)
        second = await start_forked("serve", env=environ(tmp_path), stderr=nothing, leads_group=True)
    for each in (first, second):
        each.stdin.write(INITIALIZE)
        assert b'"protocolVersion":"2025-11-25"' in await each.stdout.readline()
    assert os.getpgid(first.pid) == os.getpgid(0) and os.getpgid(second.pid) == second.pid
    first.stdin.close()
    second.kill()
    assert (await first.wait(), await second.wait()) == (0, -signal.SIGKILL)
    assert await second.stdout.read() == b""
    with pytest.raises(ProcessLookupError):
        second.terminate()


def test_limits_of_the_test_hold_for_it(tmp_path: Path) -> None:
    """As for any process that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5, hard))
        try:
            with fork_program("--version", stdout=out, stderr=err, cwd=tmp_path, env={}) as program:
                assert program.wait(30) != 0
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "out").read_bytes() == b"mcppr"
