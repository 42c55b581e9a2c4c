"""The interface against its own description: whatever is sent, the answer is one that is described."""

import asyncio
import sys
from pathlib import Path

import anyio
import pytest
from broker_upstream import BrokerUpstream
from transports import ENVIRON, listening, opened_gateway, served

from smart_mcp_proxy.web.rest import operator_token

pytestmark = [pytest.mark.anyio, pytest.mark.long]

PROGRAM = Path(sys.executable).parent / "schemathesis"
RULES = Path(__file__).parent / "openapi.toml"
LIMIT_S = 240
LAST_CHARS = 20_000


@pytest.mark.requirement("openapi-behaviour")
@pytest.mark.parametrize("examples", [5, pytest.param(15, marks=pytest.mark.soak)])
async def test_every_answer_is_one_that_is_described(tmp_path: Path, examples: int) -> None:
    """REST and broker, good requests and bad ones: status, type, schema, `Allow`, and who is let in.

    The servers do not come from a file, so nothing that is sent changes or starts any.
    """
    if not PROGRAM.exists():
        pytest.skip("schemathesis is not installed: pip install --group dev")
    async with listening(BrokerUpstream()) as there:
        servers = {"b": {"url": f"{there}/mcp", "proxy": True}, "plain": {"url": f"{there}/mcp"}}
        async with opened_gateway(tmp_path / "data", servers) as gateway, served(gateway) as base:
            gateway.start_upstreams()
            assert await gateway.wait_settled(20)
            token = operator_token(gateway.settings)
            found, said = await run_schemathesis(base, token, tmp_path, examples)
    assert found == 0, said[-LAST_CHARS:]


async def run_schemathesis(base: str, token: str, folder: Path, examples: int) -> tuple[int | None, str]:
    """Its exit status and what it says; its files are in `folder`."""
    command = (PROGRAM, "--config-file", RULES, "run", f"{base}/openapi.json", "--no-color")
    command += ("--max-examples", examples)
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        env=ENVIRON | {"OPERATOR_TOKEN": token, "HOME": str(folder)},
    )
    try:
        with anyio.fail_after(LIMIT_S):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, said.decode()
