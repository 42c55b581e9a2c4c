"""The command line's words: help, versions, mistakes, and what they cost."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import PROGRAM, Run, environment, run_process

from smart_mcp_proxy import __version__
from smart_mcp_proxy.cli.app import COMMANDS, build_app


def test_the_version_is_one_line(tmp_path: Path) -> None:
    """`--version` prints name and version and nothing else."""
    done = run_process("--version", cwd=tmp_path, env=environment(tmp_path))
    assert done == (0, f"mcpproxy {__version__}\n", "")


def test_parsing_imports_nothing_heavy() -> None:
    """Building the grammar imports neither the gateway's libraries nor the settings."""
    heavy = ["fastmcp", "mcp", "sqlalchemy", "numpy", "httpx2", "pydantic"]
    program = (
        "import sys; import smart_mcp_proxy.cli.app as app; app.build_app()\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.long  # a third of a second of processor time
def test_loading_a_command_imports_no_gateway() -> None:
    """A mistyped option of any command is answered without waiting for fastmcp."""
    program = (
        "import sys; from smart_mcp_proxy.cli.app import COMMANDS, build_app\n"
        "for name in COMMANDS: build_app()([name, '--help'])\n"
        "print([name for name in ('fastmcp', 'mcp', 'sqlalchemy', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


@pytest.mark.long  # a third of a second of processor time
def test_help_teaches_every_command_by_examples(run: Run) -> None:
    """The overview of commands and each command's help end with examples that use real commands."""
    overview = run("--help")
    assert overview.status == 0
    for name, (_, summary) in COMMANDS.items():
        assert name in overview.out
        page = run(name, "--help")
        assert page.status == 0
        assert summary in page.out
        assert f"mcpproxy {name}" in page.out.partition("Examples:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_what_the_command_says_itself(name: str) -> None:
    """The list of commands, written down so that parsing is quick, cannot drift from the commands."""
    command = build_app()[name]
    _, summary = COMMANDS[name]
    stated = command.default_command.__doc__ if command.default_command else None
    assert stated is None or stated.splitlines()[0] == summary


@pytest.mark.parametrize(
    ("words", "said", "helps"),
    [
        (["serch", "x"], "Did you mean 'search'?", "mcpproxy search"),
        (["tool", "lst"], 'Did you mean "list"?', "mcpproxy tool --help"),
        (["search", "x", "--limt", "3"], "Did you mean --limit?", "mcpproxy search --help"),
        (["search"], "QUERY", "mcpproxy search --help"),
        (["search", "x", "--limit", "51"], "51", "mcpproxy search --help"),
        (["search", "x", "--detail", "most"], '"compact", "full"', "mcpproxy search --help"),
        (["search", "x", "--types", "tool,promt"], "--types names 'promt'", "mcpproxy search --help"),
        (["serve", "--port", "x"], '"x"', "mcpproxy serve --help"),
        (["call", "a:b", "novalue"], "'novalue' is not an argument", "mcpproxy call --help"),
        (["call", "a:b", "a=1", "a=2"], "'a' is given twice", "mcpproxy call --help"),
        (["call", "a:b", "a=1", "--input-json", "{}"], "both as key=value and", "mcpproxy call --help"),
        (["call", "a:b", "--input-json", "[1]"], "not a JSON object", "mcpproxy call --help"),
        (["call", "a:b", "--input-json", "{"], "not JSON", "mcpproxy call --help"),
        (["serve", "--http", "--sse"], "both given", "mcpproxy serve --help"),
        (["serve", "--json"], "stdout belongs to the protocol", "mcpproxy serve --help"),
        (["demo", "\udcff"], r"'\udcff' is not text in UTF-8", "mcpproxy --help"),
        (["\udcff"], r"'\udcff' is not text in UTF-8", "mcpproxy --help"),
        (["demo", "x", "--serve"], "do not go together", "mcpproxy demo --help"),
    ],
)
def test_a_usage_error_is_2_and_names_the_next_command(run: Run, words: list[str], said: str, helps: str) -> None:
    """What is wrong goes to stderr with the page that helps; stdout stays empty."""
    done = run(*words)
    assert done.status == 2
    assert said in done.err
    assert done.next_command == helps
    assert done.out == "" or json.loads(done.out)["error"]["code"] == "usage"


def test_an_error_is_json_where_json_was_asked_for(run: Run) -> None:
    """With --json stdout holds the error as the one value, and stderr the same for people."""
    done = run("search", "x", "--limit", "0", "--json")
    assert done.status == 2
    assert done.json["error"]["code"] == "usage"
    assert "0" in done.json["error"]["message"]
    assert done.err.startswith("error: ")


def test_a_wrong_setting_is_2_and_names_variable_value_and_range(run: Run) -> None:
    """One line for each wrong setting."""
    done = run("search", "x", TOP_K="ten", PORT="-1")
    assert done.status == 2
    assert "MCPPROXY_TOP_K is 'ten'. Expected an integer from 1 to 50." in done.err
    assert "MCPPROXY_PORT is '-1'." in done.err


def test_an_unknown_variable_is_warned_about_once(run: Run) -> None:
    """A likely misspelling is named; the command runs all the same."""
    done = run("config", "path", TOPK="3")
    assert done.err.count("MCPPROXY_TOPK is not a setting. Did you mean MCPPROXY_TOP_K?") == 1


def test_ctrl_c_is_130_without_a_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted command ends as a shell expects it."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("smart_mcp_proxy.cli.app.build_app", interrupted)
    assert run("search", "x") == (130, "", "")


@pytest.mark.long  # starts and ends processes, seconds of it
@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-", "2>/dev/full"])
def test_a_standard_stream_that_is_closed_or_full_stops_nothing(run: Run, home: Path, stream: str) -> None:
    """What can be told is told elsewhere; nothing else is opened in its place."""
    done = shell(f"server add made {stream} -- x", home)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert [server["name"] for server in run("server", "list", "--json").json] == ["made"]


@pytest.mark.long  # starts and ends processes, seconds of it
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is always full")
@pytest.mark.parametrize(
    "words", ["config show", "config show --json", "server show no --json", "activity export --format csv"]
)
def test_output_that_cannot_be_written_is_told(home: Path, words: str) -> None:
    """On stderr, with the reason; the exit status is 1."""
    done = shell(f"{words} > /dev/full", home)
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "Next: " in done.stderr
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.long  # starts and ends processes, seconds of it
@pytest.mark.parametrize("words", ["server import -", "call a:b --input-json -", "server approve w", "approve --all"])
def test_a_question_or_a_text_on_a_closed_input_is_told(home: Path, words: str) -> None:
    """As on an empty one."""
    (home / "mcp_config.json").write_text('{"mcpServers": {"w": {"command": "x", "quarantined": true}}}')
    done = shell(f"{words} <&-", home)
    assert "Traceback" not in done.stderr and done.returncode in (0, 1, 2)
    assert "true" in (home / "mcp_config.json").read_text()


def shell(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs `mcpproxy WORDS` by a shell, whose redirections count."""
    program = shlex.join(PROGRAM)
    script = f'mcpproxy() {{ {program} "$@"; }}\nmcpproxy {words}'
    env = environment(folder / "data")
    return subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, cwd=folder, env=env, timeout=60, check=False
    )
