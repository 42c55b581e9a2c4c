"""`mcpproxy ui`: a link that opens the page of a running gateway."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cli_runs import Run, environment, run_process, served


def test_without_a_gateway_it_says_how_to_start_one(run: Run) -> None:
    """The next command is the one that helps."""
    done = run("ui", "--print-url")
    assert (done.status, done.out) == (1, "")
    assert done.next_command == "mcpproxy serve --http"


@pytest.mark.long  # a gateway and a process for each link
def test_the_link_leads_in_once(tmp_path: Path) -> None:
    """It alone is on stdout, so that a script can take it; as JSON with its life."""
    with served(tmp_path / "home") as folder:
        env = environment(folder)
        made = run_process("ui", "--print-url", cwd=folder, env=env)
        assert made.status == 0 and made.out.count("\n") == 1 and "5 minutes" in made.err
        link = made.out.strip()
        with urllib.request.urlopen(link) as reply:
            assert reply.status == 200 and "HttpOnly" in reply.headers["set-cookie"]
        try:
            urllib.request.urlopen(link)
        except urllib.error.HTTPError as refused:
            assert refused.code == 403
        else:
            raise AssertionError("it worked twice")
        other = run_process("ui", "--json", cwd=folder, env=env).json
        assert other["expires_in_s"] == 300 and other["url"] != link
