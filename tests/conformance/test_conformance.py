"""The protocol's own conformance suite finds nothing wrong with the gateway, as a server and as a client."""

import subprocess

import pytest
from node_tools import ROOT, node_environment

pytestmark = pytest.mark.clients

LIMIT_S = 900
CANNOT_BE_HAD = 3


def run_suite(*words: str) -> None:
    """Runs the comparison; skips the test where the suite cannot be had."""
    script = ROOT / "scripts" / "conformance.sh"
    done = subprocess.run(
        [script, *words], capture_output=True, text=True, timeout=LIMIT_S, env=node_environment(), check=False
    )
    if done.returncode == CANNOT_BE_HAD:
        pytest.skip(f"no conformance suite: {done.stderr.strip()[-300:]}")
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_gateway_passes_what_the_server_behind_it_passes() -> None:
    """Both protocol versions, tools part; the baseline file explains what is not served yet."""
    run_suite()


def test_the_gateway_passes_the_scenarios_for_clients() -> None:
    """As the client of the suite's servers: sign-in, headers, retries; the baseline names the extensions left out."""
    run_suite("client")
