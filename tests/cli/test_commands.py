"""The commands that answer a question, on a gateway of their own and on a running one."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import PROGRAM, Done, Run, environment, run_process, some_servers
from full_disks import full_disk

from smart_mcp_proxy.gateway import app
from smart_mcp_proxy.upstream.fleet import Fleet

BAD_FILES = {
    "empty": "",
    "not json": "{",
    "not an object": "7",
    "binary": "\udcff\x00",
    "no servers": '{"mcpServers": {}}',
    "no good server": '{"mcpServers": {"a": {"args": 3}}}',
}


@pytest.fixture
def project(home: Path) -> Path:
    """A working directory with two servers in its server file."""
    (home / "mcp_config.json").write_text(json.dumps(some_servers("todo", "clock")))
    return home


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES)
@pytest.mark.parametrize("words", [["search", "x"], ["tool", "list"], ["call", "a:b"]])
def test_a_bad_server_file_is_2_with_what_to_do(home: Path, run: Run, words: list[str], content: str) -> None:
    """Whatever is wrong with the file, the message names it, no traceback is shown, and nothing is written over it."""
    file = home / "mcp_config.json"
    file.write_text(content, encoding="utf-8", errors="surrogateescape")
    before = file.read_bytes()
    done = run(*words, "--json")
    assert file.read_bytes() == before
    assert done.status == 2
    assert done.json["error"]["code"] == "config_invalid"
    assert done.json["error"]["hint"]
    assert done.next_command.startswith("mcpproxy ")


def test_a_missing_server_file_is_2_if_it_was_named(home: Path, run: Run) -> None:
    """Named and missing, a directory, or none at all."""
    for named, said in [("nope.json", "There is no such file"), (str(home), "cannot be read")]:
        done = run("search", "x", CONFIG_PATH=named)
        assert (done.status, done.out) == (2, "")
        assert said in done.err
    done = run("search", "x")
    assert done.status == 2
    assert "No server file" in done.err
    assert done.next_command == "mcpproxy init"


def test_a_data_directory_that_is_a_file_is_2(project: Path, run: Run) -> None:
    """The message names the directory."""
    (project / "data").write_text("a file")
    done = run("search", "x")
    assert done.status == 2
    assert str(project / "data") in done.err


@pytest.mark.long  # much work for one test
def test_a_search_connects_first_and_then_answers_from_the_stored_catalog(project: Path, run: Run) -> None:
    """The first search waits for the servers, the second says where its answer is from, --fresh connects again."""
    first = run("search", "add a task", "--why")
    assert first.status == 0
    assert "add_task" in first.out
    assert "name: add, task" in first.out
    assert "estimate" in first.err
    assert "stored" not in first.err
    second = run("search", "add a task", "--json", "--limit", "1")
    assert "From the stored catalog." in second.err
    assert [tool["name"] for tool in second.json["tools"]] == ["todo:add_task"]
    assert second.json["tools"][0]["stale"] is True
    fresh = run("search", "add a task", "--json", "--fresh")
    assert "stored" not in fresh.err
    assert fresh.json["tools"][0]["stale"] is False


@pytest.mark.long  # a third of a second of processor time
def test_what_the_stored_catalog_answers_starts_no_server(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the answer takes, and whoever looks at it."""
    assert run("tool", "list").status == 0
    started = []

    async def note_start(fleet: Fleet) -> None:
        started.append(fleet)

    monkeypatch.setattr(Fleet, "start", note_start)
    monkeypatch.setattr(app, "START_DELAY_S", 0)
    for words in (["approve", "--list"], ["search", "add a task"], ["server", "disable", "todo"]):
        assert (run(*words).status, started) == (0, [])


def test_what_comes_behind_the_answer_is_named_once_with_what_a_call_needs(project: Path, run: Run) -> None:
    """Not among what was left out as well."""
    done = run("search", "add a task", "--why", "--limit", "1")
    [line] = [line for line in done.err.splitlines() if line.startswith("More that fit: ")]
    for named in line.removeprefix("More that fit: ").split("), "):
        assert f"Left out: {named.partition('(')[0]} " not in done.err


@pytest.mark.long  # a third of a second of processor time
def test_tools_are_listed_and_shown(project: Path, run: Run) -> None:
    """A list of all or of one server's, and a definition by either name."""
    assert {tool["server"] for tool in run("tool", "list", "--json").json} == {"todo", "clock"}
    of_one = run("tool", "list", "--server", "clock")
    assert "clock:now" in of_one.out
    assert "todo:" not in of_one.out
    shown = run("tool", "show", "todo__add_task")
    assert "Add a task to the to-do list" in shown.out
    assert '"maxLength": 200' in shown.out
    assert run("tool", "show", "todo:add_task", "--json").json["input_schema"]["required"] == ["title"]


@pytest.mark.long  # much work for one test
def test_a_wrong_name_is_1_and_says_what_was_meant(project: Path, run: Run) -> None:
    """Tools and servers alike; the last line is the command that helps."""
    done = run("tool", "show", "todo:ad_task", "--json")
    assert done.status == 1
    assert done.json["error"]["code"] == "tool_not_found"
    assert "Did you mean todo:add_task" in done.err
    assert done.next_command == "mcpproxy tool show todo:add_task"
    done = run("call", "todo:zzzzzzzzzzzz")
    assert (done.status, done.next_command) == (1, "mcpproxy tool list")
    for words in (["server", "logs", "tod"], ["tool", "list", "--server", "tod"], ["search", "x", "--server", "tod"]):
        done = run(*words)
        assert done.status == 1
        assert "Close: todo" in done.err
        assert done.next_command == "mcpproxy server list"


@pytest.mark.long  # starts programs, a second of it
def test_a_call_sends_typed_values_and_prints_the_result(project: Path, run: Run) -> None:
    """key=value, --input-json and stdin all reach the tool."""
    done = run("call", "clock:add_duration", "time=2026-01-01T00:00:00", "days=1")
    assert done.status == 0
    assert "2026-01-02" in done.out
    arguments = json.dumps({"start": "2026-01-01", "end": "2026-01-31"})
    for words, stdin in ([["--input-json", arguments], ""], [["--input-json", "-"], arguments]):
        done = run("call", "clock:date_difference", *words, "--json", stdin=stdin)
        assert done.json["structuredContent"]["days"] == 30
        assert done.json["isError"] is False


def test_a_call_without_a_required_argument_shows_the_parameters(project: Path, run: Run) -> None:
    """The server is not called; the parameters are listed with type and need."""
    done = run("call", "todo:add_task", "due=2026-01-01", "--json")
    assert done.status == 1
    assert done.json["error"]["code"] == "invalid_arguments"
    assert "title (string, required)  What to do" in done.err
    assert done.next_command == "mcpproxy tool show todo:add_task"


@pytest.mark.long  # a third of a second of processor time
def test_a_value_of_the_wrong_type_is_2(project: Path, run: Run) -> None:
    """It is refused before anything is called."""
    done = run("call", "todo:complete_task", "id=abc")
    assert (done.status, done.next_command) == (2, "mcpproxy tool show todo:complete_task")
    assert "Expected an integer." in done.err


@pytest.mark.long  # much work for one test
def test_a_tool_that_reports_a_failure_is_1(project: Path, run: Run) -> None:
    """Its text goes to stderr for people, and the whole result to stdout with --json."""
    done = run("call", "todo:complete_task", "id=7")
    assert (done.status, done.out) == (1, "")
    assert "There is no task 7." in done.err
    assert run("call", "todo:complete_task", "id=7", "--json").json["isError"] is True


@pytest.mark.long  # a third of a second of processor time
def test_servers_that_cannot_start_are_listed_with_what_to_do(home: Path, run: Run) -> None:
    """State, error and hint of each; a call of theirs says it too."""
    broken = {"gone": {"command": "no-such-program"}, "env": {"command": "x", "env": {"A": "${NOT_SET_HERE}"}}}
    (home / "mcp_config.json").write_text(
        json.dumps({"mcpServers": {**broken, "off": {"command": "x", "disabled": True}}})
    )
    states = {server["name"]: server["state"] for server in run("server", "list", "--json").json}
    assert states == {"gone": "error", "env": "needs_env", "off": "disabled"}
    table = run("server", "list").out
    assert "no-such-program" in table
    assert "NOT_SET_HERE" in table
    done = run("call", "gone:anything")
    assert done.status == 1
    assert done.err.count("'gone' is not ready (error)") == 1 and "Install it, or give its full path." in done.err
    assert "No server can be used" in run("search", "x", "--json").json["hint"]
    assert "not found on PATH" in run("server", "logs", "gone").err


@pytest.mark.long  # a third of a second of processor time
def test_logs_are_what_the_server_wrote(home: Path, run: Run) -> None:
    """The last lines of its stderr, without anything that could take control of the terminal."""
    script = "import sys; print('one\\x1b[2J', file=sys.stderr); print('two', file=sys.stderr)"
    entry = {"command": sys.executable, "args": ["-c", script]}
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": {"loud": entry}}))
    assert run("server", "logs", "loud", "-n", "1").out == "two\n"
    told = run("server", "logs", "loud", "--json").json
    assert (told["server"], told["lines"][-2:]) == ("loud", ["one\x1b[2J", "two"])
    assert "\x1b" not in run("server", "logs", "loud").out


def test_logs_of_one_server_start_no_other(home: Path, run: Run) -> None:
    """Without a running gateway nothing is on file, so that one server is started; the rest is not asked about."""
    mark = home / "started"
    loud = {"command": sys.executable, "args": ["-S", "-c", "import sys; print('one', file=sys.stderr)"]}
    other = {"command": sys.executable, "args": ["-S", "-c", f"open({str(mark)!r}, 'w')"]}
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": {"loud": loud, "other": other}}))
    assert run("server", "logs", "loud", "-n", "1").out == "one\n"
    assert not mark.exists()


def test_logs_without_a_gateway_start_a_failing_server_once_and_say_so(home: Path, run: Run) -> None:
    """Its lines stand once, and stderr says that it was tried just now, and how that ended."""
    starts = home / "starts"
    script = f"import sys; open({str(starts)!r}, 'a').write('x'); print('no database', file=sys.stderr); sys.exit(3)"
    (home / "mcp_config.json").write_text(
        json.dumps({"mcpServers": {"broken": {"command": sys.executable, "args": ["-S", "-c", script]}}})
    )
    done = run("server", "logs", "broken")
    assert (done.status, done.out, starts.read_text()) == (0, "no database\n", "x")
    assert "No gateway runs, so server 'broken' was tried once for this" in done.err
    assert "exit code 3" in done.err


def test_logs_without_a_gateway_of_a_server_that_works(project: Path, run: Run) -> None:
    """It is asked in the handshake's words first, so one start does for either era; it is ended again."""
    done = run("server", "logs", "todo", "--json")
    assert (done.status, done.json["server"]) == (0, "todo")
    assert "tried once for this, just now (ready). It was ready, and is ended again." in done.err


def test_logs_do_not_start_a_server_that_is_off(home: Path, run: Run) -> None:
    """Nor one that waits for a variable; each is said."""
    off = {"command": "no-such-program", "disabled": True}
    waits = {"command": "no-such-program", "env": {"A": "${NOT_SET_HERE}"}}
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": {"off": off, "waits": waits}}))
    assert "server 'off' was not started: it is disabled." in run("server", "logs", "off").err
    told = run("server", "logs", "waits").err
    assert "server 'waits' was not started: it is needs_env." in told
    assert "NOT_SET_HERE" in told


@pytest.mark.long  # a third of a second of processor time
def test_a_question_does_not_empty_the_catalog(project: Path, run: Run) -> None:
    """MCPPROXY_RESET_DATA is for the server."""
    run("tool", "list")
    assert "From the stored catalog." in run("tool", "list", RESET_DATA="true").err


def test_config_show_hides_secrets_and_names_origins(home: Path, run: Run) -> None:
    """Values with where they came from; a token is only said to be set."""
    done = run("config", "show", "--origin", AUTH_TOKEN="very-secret-token", TOP_K="7")
    assert "very-secret-token" not in done.out + done.err
    facts = {one["variable"]: one for one in run("config", "show", "--json", AUTH_TOKEN="very-secret", TOP_K="7").json}
    assert facts["MCPPROXY_TOP_K"]["value"] == "7"
    assert facts["MCPPROXY_TOP_K"]["origin"] == "environment"
    assert facts["MCPPROXY_PORT"]["origin"] == "default"
    assert facts["MCPPROXY_AUTH_TOKEN"]["value"] == "[set]"


def test_config_path_is_the_file_in_use(project: Path, run: Run) -> None:
    """The path alone on stdout; 1 where there is none."""
    assert run("config", "path") == (0, f"{project / 'mcp_config.json'}\n", "")
    assert run("config", "path", "--json").json == {"path": str(project / "mcp_config.json")}
    (project / "mcp_config.json").unlink()
    done = run("config", "path")
    assert (done.status, done.out, done.next_command) == (1, "", "mcpproxy init")
    done = run("config", "path", "--json", CONFIG_JSON="{}")
    assert (done.status, done.json) == (1, {"path": None})


@pytest.mark.long  # a third of a second of processor time
def test_doctor_names_everything_that_fails(project: Path, run: Run) -> None:
    """Healthy: 0. With a missing program, a broken entry and an address that is not ours: 1, one line each."""
    good = run("doctor", "--json")
    assert (good.status, good.json["ok"]) == (0, True)
    outcomes = {check["check"]: check["outcome"] for check in good.json["checks"]}
    assert outcomes["config"] == outcomes["data directory"] == outcomes["todo"] == outcomes["clock"] == "ok"
    servers = {"web": {"command": "npx", "env": {"PATH": str(project)}}, "bad": {"args": 1}}
    (project / "mcp_config.json").write_text(json.dumps({"mcpServers": servers}))
    done = run("doctor", TRANSPORT="streamable-http", HOST="192.0.2.1")
    assert done.status == 1
    for name in ("bad", "address", "web"):
        assert any(line.split()[:2] == [name, "fail"] for line in done.out.splitlines()), name
    assert "Install Node.js" in done.out
    assert done.next_command.startswith("mcpproxy ")


@pytest.mark.long  # a third of a second of processor time
def test_doctor_names_packages_that_the_settings_need(project: Path, run: Run) -> None:
    """Whatever else works, with what to install."""
    done = run("doctor", EMBEDDER="HF", HF_MODEL="somebody/some-model")
    assert done.status == 1 and "Nothing fails" not in done.out + done.err
    assert any(line.split()[:2] == ["packages", "fail"] for line in done.out.splitlines())
    assert "sentence-transformers" in done.out


def test_doctor_names_a_pin_that_no_tool_has(project: Path, run: Run) -> None:
    """It is a warning: everything else works."""
    file = project / "mcp_config.json"
    servers = json.loads(file.read_text())["mcpServers"]
    servers["clock"]["pin"] = ["no_such_tool"]
    file.write_text(json.dumps({"mcpServers": servers}))
    done = run("doctor", "--json")
    assert done.status == 0
    (found,) = [check for check in done.json["checks"] if "no_such_tool" in check["message"]]
    assert (found["check"], found["outcome"]) == ("config", "warning")
    assert "mcpproxy tool list --server clock" in found["message"]


def test_doctor_names_a_full_disk(home: Path, run: Run) -> None:
    """An empty file can still be made there, which is of no use."""
    with full_disk():
        done = run("doctor", "--json")
    (found,) = [check for check in done.json["checks"] if check["check"] == "data directory"]
    assert (found["outcome"], found["hint"]) == ("fail", "Free some disk space.")


def test_doctor_survives_a_broken_file_and_a_data_directory_that_is_a_file(home: Path, run: Run) -> None:
    """What cannot be looked at because of that is left out, the rest is checked."""
    (home / "mcp_config.json").write_text("{")
    (home / "data").write_text("")
    done = run("doctor", "--json")
    assert done.status == 1
    failed = {check["check"] for check in done.json["checks"] if check["outcome"] == "fail"}
    assert failed == {"config", "data directory"}


@pytest.mark.long  # a third of a second of processor time
def test_the_demo_answers_a_query_and_leaves_nothing_behind(home: Path, run: Run) -> None:
    """A table with reasons, the token line, and no trace in the data directory; configured servers are not used."""
    done = run("demo", "mix two colors", CONFIG_PATH="nope.json")
    assert done.status == 0
    assert "mix_colors" in done.out
    assert "name: mix, color" in done.out
    assert "estimate: UTF-8 bytes / 4" in done.err
    assert not (home / "data").exists()


@pytest.mark.long  # a third of a second of processor time
def test_the_demo_speaks_json(run: Run) -> None:
    """The answer to a query as an agent gets it."""
    assert run("demo", "mix two colors", "--json").json["tools"][0]["name"] == "colors:mix_colors"


@pytest.mark.long  # a third of a second of processor time
def test_the_first_answer_of_a_command_ranks_by_meaning_too(run: Run) -> None:
    """A command asks once: an answer without vectors would be a worse one than a gateway that runs gives."""
    found = run("demo", "mix two colors", "--json", EMBEDDER="AUTO").json["tools"]
    assert found and all("vector" in tool["why"] for tool in found)


@pytest.mark.long  # a third of a second of processor time
def test_the_demo_alone_is_a_tour(home: Path, run: Run) -> None:
    """Servers, two searches, one call, and what to do next."""
    done = run("demo")
    assert done.status == 0
    assert done.out.count("$ mcpproxy search") == 2
    assert "date_difference" in done.out
    assert '"title": "Try mcpproxy with my own servers"' in done.out
    assert "Next: mcpproxy demo" in done.out


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a gateway that serves HTTP in a process of its own."""
    folder = tmp_path_factory.mktemp("gw")
    (folder / "mcp_config.json").write_text(json.dumps(some_servers("todo")))
    process = subprocess.Popen(
        [*PROGRAM, "serve", "--http", "--port", "0", "--json"],
        cwd=folder,
        env=environment(folder, LOG_LEVEL="ERROR"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["tools"] == 7
        yield folder
        process.terminate()
        assert process.wait(10) == 0


@pytest.mark.long  # a third of a second of processor time
def test_a_running_gateway_of_the_data_directory_answers(running: Path, run: Run) -> None:
    """State that only it can have is seen; the server file here does not matter."""
    assert run("call", "todo:add_task", "title=Milk", DATA_DIR=str(running)).status == 0
    listed = run("call", "todo:list_tasks", "--json", DATA_DIR=str(running))
    assert [task["title"] for task in listed.json["structuredContent"]["tasks"]] == ["Milk"]
    assert "Answered by the running gateway" in listed.err


@pytest.mark.long  # a third of a second of processor time
def test_a_dead_socket_is_removed_and_passed_over(running: Path, run: Run) -> None:
    """What a killed gateway left behind does not keep the living one from answering."""
    script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])"
    dead = running / "run" / "1.sock"
    subprocess.run([sys.executable, "-c", script, str(dead)], check=True)
    assert run("server", "list", "--json", DATA_DIR=str(running)).json[0]["state"] == "ready"
    assert not dead.exists()


@pytest.mark.long  # starts programs, a second of it
def test_a_running_gateway_answers_without_loading_one(running: Path, home: Path) -> None:
    """The command that asks it imports neither fastmcp nor the catalog."""
    program = (
        "import sys; from smart_mcp_proxy.cli.app import main; sys.argv = ['mcpproxy', 'server', 'list', '--json']\n"
        "status = main()\n"
        "print([name for name in ('fastmcp', 'sqlalchemy', 'numpy') if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(running), capture_output=True, text=True, check=True
    )
    assert done.stderr.endswith("[]\n")


@pytest.mark.long  # starts programs, a second of it
def test_the_overview_shows_config_running_gateways_and_next_steps(running: Path, project: Path, run: Run) -> None:
    """On a terminal `mcpproxy` alone prints what there is; nothing is created by looking."""
    alone = run(at_terminal=True)
    assert alone.status == 0
    assert "mcp_config.json: 2 servers" in alone.out
    assert "no gateway on this data directory" in alone.out
    assert "0 tools known" in alone.out
    # Apart from what they are for, also where a narrow terminal leaves one space between.
    assert re.search(r"^ +mcpproxy doctor +# check", alone.out, re.MULTILINE)
    assert not (project / "data").exists()
    assert "1 ready; 7 tools" in run(at_terminal=True, DATA_DIR=str(running)).out
    run("tool", "list")
    assert "14 tools known" in run(at_terminal=True).out
    (project / "mcp_config.json").write_text("{")
    assert "line 1, column 2" in run(at_terminal=True).out
    (project / "mcp_config.json").unlink()
    assert "mcpproxy demo" in run(at_terminal=True).out


@pytest.mark.long  # a process for each command
def test_output_for_a_pipe_is_not_wrapped_or_colored(running: Path, tmp_path: Path) -> None:
    """Off a terminal there are no escape sequences, no progress, and one line for each row."""
    done: Done = run_process("tool", "list", cwd=tmp_path, env=environment(running))
    assert "\x1b" not in done.out + done.err
    assert len(done.out.splitlines()) == 8
