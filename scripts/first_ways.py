"""Walk the first minutes of three newcomers, each in an empty home: python scripts/first_ways.py [--only WAY] [--json].

`checkout`: `make run` in a fresh clone, to the page opened in Chromium. `desktop`: four clients' files with 19 entries,
through `init`, `connect` and `doctor`, to the first call. `team`: a container, or where no engine is the same command
and variables without one, to an agent's first call. Prints each step with its seconds and the questions that a person
answered; a step that fails ends the program with status 1. Needs the development tools, Chromium and the network.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pty
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp_types import Implementation
from playwright.sync_api import sync_playwright

from smart_mcp_proxy.demo import demo_servers

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 60.0
INSTALL_S = 900.0
CTRL_C = "\x03"
LINK = re.compile(r"(http://127\.0\.0\.1:\d+/ui/\S+)")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
QUESTION = "add a task to my list"


class StepError(Exception):
    """A step that a newcomer could not have gone on from."""


@dataclass
class Step:
    """One thing that a person does and waits for.

    Args:
        words: What.
        seconds: How long it took.
        decisions: Questions that were answered.
    """

    words: str
    seconds: float = 0.0
    decisions: int = 0


class Walk:
    """The steps so far.

    Args:
        name: Of the way.
        home: Empty.
    """

    def __init__(self, name: str, home: Path) -> None:
        self.name, self.home, self.note = name, home, ""
        self.steps: list[Step] = []
        kept = {
            each: os.environ[each] for each in os.environ if each.startswith(("PIP_", "SSL_", "UV_", "NPM_", "npm_"))
        }
        programs = f"{home}/bin:{Path(shutil.which('npm') or '/usr/bin/npm').parent}:/usr/local/bin:/usr/bin:/bin"
        self.env = kept | {"HOME": str(home), "PATH": programs, "TERM": "xterm", "LANG": "C.UTF-8", "COLUMNS": "100"}

    @contextmanager
    def step(self, words: str) -> Iterator[Step]:
        """Times one step."""
        step, began_s = Step(words), time.monotonic()
        yield step
        step.seconds = round(time.monotonic() - began_s, 1)
        self.steps.append(step)
        print(f"  {step.seconds:6.1f} s  {words}", file=sys.stderr)

    def table(self) -> str:
        """The way in Markdown."""
        seconds, decisions = (sum(getattr(each, key) for each in self.steps) for key in ("seconds", "decisions"))
        rows = [f"| {each.words} | {each.seconds:.1f} | {each.decisions or ''} |" for each in self.steps]
        head = [f"| {self.name}{self.note} | seconds | questions |", "| --- | --- | --- |"]
        return "\n".join([*head, *rows, f"| *{len(rows)} steps* | *{seconds:.1f}* | *{decisions}* |"])


class Terminal:
    """A command on a terminal of its own.

    Args:
        words: The command.
        cwd: Where it runs.
        env: Its variables.
    """

    def __init__(self, words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        self._words, self._seen = words, 0
        self.text = ""
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.chdir(cwd)
            os.execvpe(words[0], list(words), dict(env))

    def _read(self, limit_s: float) -> bool:
        if not select.select([self._file], [], [], max(0.0, limit_s))[0]:
            raise StepError(f"{' '.join(self._words)} said nothing that was waited for:\n{self.text[-3000:]}")
        try:
            chunk = os.read(self._file, 65_536)
        except OSError:  # the command has ended
            return False
        self.text += CONTROL.sub("", chunk.decode(errors="replace"))
        return bool(chunk)

    def wait_for(self, pattern: str, limit_s: float = LIMIT_S) -> re.Match[str]:
        """Reads on until it has printed this, behind what was waited for before."""
        until_s = time.monotonic() + limit_s
        while not (found := re.compile(pattern).search(self.text, self._seen)):
            if not self._read(until_s - time.monotonic()):
                raise StepError(f"{' '.join(self._words)} ended without '{pattern}':\n{self.text[-3000:]}")
        self._seen = found.end()
        return found

    def type(self, text: str) -> None:
        """Types, as a person does."""
        os.write(self._file, text.encode())

    def end(self, *allowed: int) -> str:
        """All that it printed, when it has ended; any status but 0 or an allowed one is a failure."""
        until_s = time.monotonic() + LIMIT_S
        while self._read(until_s - time.monotonic()):
            pass
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        os.close(self._file)
        if status not in (0, *allowed):
            raise StepError(f"{' '.join(self._words)} ended with status {status}:\n{self.text[-3000:]}")
        return self.text


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def open_page(link: str) -> str:
    """The heading of the page behind a link, in Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise StepError("Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        answer = page.goto(link)
        page.wait_for_load_state("networkidle")
        heading, status = page.locator("h1").first.inner_text(), answer.status if answer else 0
        browser.close()
    if status != 200:
        raise StepError(f"{link} answered {status}: {heading}")
    return heading


def walk_checkout(walk: Walk) -> None:
    """`make run` in a fresh clone, as README says, to the opened page."""
    clone = walk.home / "smart-mcp-proxy"
    with walk.step("`git clone`"):
        done = subprocess.run(
            ["git", "clone", "--quiet", "--no-local", str(ROOT), str(clone)],
            env=walk.env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise StepError(done.stderr)
    terminal = Terminal(["make", "run"], clone, walk.env | {"MCPPROXY_PORT": str(find_free_port())})
    with walk.step("`make run`, until it is installed"):
        terminal.wait_for(r"installed in \d+ s", INSTALL_S)
    with walk.step("until real servers are fetched and it listens"):
        terminal.wait_for(r"Listening on http", INSTALL_S)
    with walk.step("until the link to the page"):
        link = terminal.wait_for(LINK.pattern)[1]
        if failed := re.findall(r"^(\S+) +stdio +error.*", terminal.text, re.MULTILINE):
            raise StepError(f"Servers of make run fail: {', '.join(failed)}\n{terminal.text[-3000:]}")
    with walk.step("open the link in Chromium"):
        open_page(link)
    with walk.step("Ctrl-C"):
        terminal.type(CTRL_C)
        terminal.end(-signal.SIGINT)  # make's own way to end; it says nothing of an error


def write_clients(home: Path) -> dict[Path, bytes]:
    """Nineteen entries in the files of four clients, as they grow on a desktop: doubles, secrets, a project's."""
    demo = demo_servers()
    stdio = {key: {**value, "type": "stdio"} for key, value in demo.items()}
    remote = {"type": "http", "url": "http://127.0.0.1:9/mcp"}
    claude = {
        "mcpServers": {"todo": stdio["todo"], "clock": stdio["clock"], "docs": remote},
        "projects": {str(home / "app"): {"mcpServers": {"app-db": stdio["colors"]}}},
    }
    cursor = {
        "mcpServers": {
            "todo": demo["todo"],
            "colors": demo["colors"],
            "github": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer ${env:GITHUB_TOKEN}"}},
            "palette": demo["colors"],
            "files": {**demo["todo"], "cwd": "${workspaceFolder}"},
            "mail": {**demo["todo"], "env": {"MAIL_KEY": "a-long-secret-value-0123456789"}},
        }
    }
    vscode = {
        "inputs": [{"id": "key", "type": "promptString", "description": "Key of the tracker", "password": True}],
        "servers": {
            "clock": stdio["clock"],
            "tracker": {**stdio["todo"], "env": {"TRACKER_KEY": "${input:key}"}},
            "calendar": stdio["clock"],
            "sketch": stdio["colors"],
            "off": {**stdio["clock"], "disabled": True},
        },
    }
    codex = "".join(
        f"[mcp_servers.{name}]\ncommand = {json.dumps(entry['command'])}\nargs = {json.dumps(entry['args'])}\n\n"
        for name, entry in (
            ("todo", demo["todo"]),
            ("days", demo["clock"]),
            ("paint", demo["colors"]),
            ("groceries", demo["todo"]),
        )
    )
    files = {
        home / ".claude.json": json.dumps(claude, indent=2),
        home / ".cursor/mcp.json": json.dumps(cursor, indent=2),
        home / ".config/Code/User/mcp.json": json.dumps(vscode, indent=2),
        home / ".codex/config.toml": codex,
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {path: path.read_bytes() for path in files}


async def search_and_call(client: Client[Any]) -> str:
    """The name of the tool that a search found and a call reached."""
    async with client:
        content: Any = (await client.call_tool("retrieve_tools", {"query": QUESTION})).content[0]
        found = json.loads(content.text)
        if not found["tools"]:
            raise StepError(f"The search '{QUESTION}' found nothing: {found}")
        tool = found["tools"][0]
        await client.call_tool(tool["call_with"], {"name": tool["name"], "args": {"title": "Milk"}})
        return str(tool["name"])


def answer_init(terminal: Terminal, step: Step) -> None:
    """Answers what `init` asks: Return takes what it proposes, and the value that only a person knows is typed."""
    for pattern, typed in (
        (r"Take over which\?", "\n"),
        (r"\[Y/n\]", "\n"),
        (r"Key of the tracker \(stored", "value\n"),
    ):
        terminal.wait_for(pattern)
        terminal.type(typed)
        step.decisions += 1
    terminal.end()


def walk_desktop(walk: Walk) -> None:
    """Four clients with 19 entries, without a keyring, to the first call of one of them, and back."""
    before = write_clients(walk.home)
    program = walk.home / "bin" / "mcpproxy"
    program.parent.mkdir()
    program.symlink_to(ROOT / ".venv" / "bin" / "mcpproxy")
    env = walk.env | {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    try:
        with walk.step("`mcpproxy init`") as step:
            answer_init(Terminal([str(program), "init"], walk.home, env), step)
        terminal = Terminal([str(program), "connect", "--all", "--move", "--write"], walk.home, env)
        with walk.step("`mcpproxy connect --all --move --write`"):
            terminal.wait_for("Waiting up to")
        with walk.step("Cursor starts its entry, searches and calls"):
            entry = json.loads((walk.home / ".cursor/mcp.json").read_text())["mcpServers"]["mcpproxy"]
            transport = StdioTransport(entry["command"], entry["args"], env=env, cwd=str(walk.home))
            asyncio.run(
                search_and_call(Client(transport, client_info=Implementation(name="cursor-vscode", version="1")))
            )
        with walk.step("`connect` has seen it"):
            terminal.wait_for("It works: cursor-vscode")
            terminal.end()
        with walk.step("`mcpproxy doctor`"):
            said = Terminal([str(program), "doctor"], walk.home, env).end(1)
            for lacking in ("GITHUB_TOKEN", "docs", "Next: "):
                if lacking not in said:
                    raise StepError(f"mcpproxy doctor does not speak of {lacking}:\n{said}")
        with walk.step("`mcpproxy disconnect --all`, every byte as before"):
            Terminal([str(program), "disconnect", "--all"], walk.home, env).end()
            if changed := [str(path) for path, content in before.items() if path.read_bytes() != content]:
                raise StepError(f"Not as they were: {', '.join(changed)}")
    finally:
        subprocess.run([str(program), "stop"], env=env, cwd=walk.home, capture_output=True, check=False)


@contextmanager
def start_team(walk: Walk, port: int, token: str) -> Iterator[None]:
    """A gateway that variables alone configure: the image where one can be started here, else its command."""
    config = {"mcpServers": {name: {**entry, "command": "python3"} for name, entry in demo_servers().items()}}
    engine, image = str(ROOT / "scripts" / "image.sh"), f"{os.environ.get('NAME', 'mcpproxy')}:slim"
    looked = subprocess.run([engine, "engine", "image", "inspect", image], capture_output=True, check=False)
    if looked.returncode == 0:
        entries = {"MCPPROXY_CONFIG_JSON": json.dumps(config), "MCPPROXY_AUTH_TOKEN": token}
        options = [word for name, value in entries.items() for word in ("-e", f"{name}={value}")]
        command = [engine, "run", "--rm", "-p", f"127.0.0.1:{port}:8000", *options, image]
        env = dict(os.environ)
    else:
        walk.note = " (no image here: the image's command and variables, without a container)"
        command = [str(ROOT / ".venv" / "bin" / "mcpproxy"), "serve"]
        env = walk.env | {
            "MCPPROXY_TRANSPORT": "streamable-http",
            "MCPPROXY_HOST": "0.0.0.0",
            "MCPPROXY_PORT": str(port),
            "MCPPROXY_DATA_DIR": str(walk.home / "data"),
            "MCPPROXY_LOG_FORMAT": "json",
            "MCPPROXY_AUTH_TOKEN": token,
            "MCPPROXY_CONFIG_JSON": json.dumps({"mcpServers": demo_servers()}),
        }
    with (
        (walk.home / "log").open("wb") as log,
        subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True) as process,
    ):
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(LIMIT_S)


def wait_ready(port: int, log: Path) -> None:
    """Returns when `/readyz` answers 200."""
    until_s = time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise StepError(f"No gateway is ready at port {port}:\n{log.read_text()[-3000:]}")


def walk_team(walk: Walk) -> None:
    """Variables alone configure a gateway; an agent with the token searches and calls."""
    port, token = find_free_port(), secrets.token_urlsafe(32)
    with contextlib.ExitStack() as team:
        with walk.step("start it, with two variables, until `/readyz`"):
            team.enter_context(start_team(walk, port, token))
            wait_ready(port, walk.home / "log")
        with walk.step("an agent without the token is refused"):
            try:
                asyncio.run(search_and_call(Client(f"http://127.0.0.1:{port}/mcp")))
            except Exception as exc:
                if "asks for a token" not in str(exc):
                    raise StepError(f"Refused in other words: {exc}") from exc
            else:
                raise StepError("An agent without the token was answered.")
        with walk.step("an agent with it searches and calls"):
            asyncio.run(search_and_call(Client(f"http://127.0.0.1:{port}/mcp", auth=token)))


WAYS: dict[str, tuple[str, Callable[[Walk], None]]] = {
    "checkout": ("A fresh clone", walk_checkout),
    "desktop": ("Four clients, 19 entries", walk_desktop),
    "team": ("A team's container", walk_team),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=WAYS, action="append", help="this way; may be repeated")
    parser.add_argument("--json", action="store_true", help="one object instead of tables")
    options = parser.parse_args()
    walks = []
    for name in options.only or WAYS:
        title, go = WAYS[name]
        print(title, file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="mcpproxy-first-", ignore_cleanup_errors=True) as home:
            walk = Walk(title, Path(home))
            try:
                go(walk)
            except (StepError, subprocess.TimeoutExpired) as exc:
                print(f"{title}: after {len(walk.steps)} steps:\n{exc}", file=sys.stderr)
                return 1
            walks.append(walk)
    if options.json:
        print(
            json.dumps(
                {each.name: {"note": each.note, "steps": [asdict(step) for step in each.steps]} for each in walks}
            )
        )
    else:
        print("\n\n".join(each.table() for each in walks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
