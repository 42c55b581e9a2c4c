"""kill -9 of `connect` and `disconnect`: a client's file is the one before or the one after, and all can be undone."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from cli_runs import PROGRAM, Run, environment
from stepped_commands import NEVER

pytestmark = pytest.mark.long  # hundreds of processes
STRIDES = [32, pytest.param(1, marks=pytest.mark.soak)]
"""Every thirty-second step, beginning at another one in each run, or all of them."""

STEPPED = Path(__file__).parent / "stepped_commands.py"
KILLED = -9
FILES = {
    "cursor": (
        ".cursor/mcp.json",
        b'{\r\n  // mine\r\n  "mcpServers": {"gh": {"command": "gh", "env": {"T": "s3cret"}}},\r\n}',
    ),
    "codex": (".codex/config.toml", b'# mine\nmodel = "o"\n\n[mcp_servers.gh]\ncommand = "gh"'),
    "goose": (".config/goose/config.yaml", b"# mine\nextensions:\n  gh: {cmd: gh}\nMODE: x\n"),
    "kiro": (".kiro/settings/mcp.json", None),
}
"""Where each client's file is, and what its owner has written there; None where there is no file."""
Kill = Callable[..., list[int]]
State = dict[str, bytes | None]


class Files:
    """The files of some clients in a home directory."""

    def __init__(self, home: Path, *clients: str) -> None:
        self.clients = clients
        self.before: State = {name: FILES[name][1] for name in clients}
        self._paths = {name: home / FILES[name][0] for name in clients}
        for name, path in self._paths.items():
            path.parent.mkdir(parents=True)
            if (data := self.before[name]) is not None:
                path.write_bytes(data)

    def now(self) -> State:
        """What each holds."""
        return {name: path.read_bytes() if path.exists() else None for name, path in self._paths.items()}

    def beside(self) -> list[Path]:
        """Everything that lies beside them, however it is called."""
        return [file for path in self._paths.values() for file in path.parent.iterdir() if file != path]

    def check(self, *states: State) -> None:
        """Each file is one of these, whole, and so is each backup."""
        for name, data in self.now().items():
            assert data in [state[name] for state in states], (name, data)
        for file in self.beside():
            if not file.name.startswith("."):
                assert ".before-mcpproxy" in file.name and file.read_bytes() in self.before.values(), file


@pytest.fixture(params=["cursor", "kiro"])
def files(request: pytest.FixtureRequest, home: Path) -> Files:
    """The file of one client: one that is there, and one that is not."""
    return Files(home / "home", request.param)


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """The process whose forks run the commands."""
    env = environment(tmp_path_factory.mktemp("stepped"))
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        env.pop(name, None)
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    command = [sys.executable, str(STEPPED)]
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=null, text=True) as process:
        yield process


@pytest.fixture
def kill(home: Path, stepped: subprocess.Popen[str]) -> Kill:
    """Runs a command as far as a step, as often as steps are given; returns exit statuses."""
    assert stepped.stdin is not None and stepped.stdout is not None
    stdin, stdout = stepped.stdin, stepped.stdout

    def killed(*steps: int, words: tuple[str, ...]) -> list[int]:
        stdin.write(f"{home} {' '.join(map(str, steps))} {' '.join(words)}\n")
        stdin.flush()
        return [int(word) for word in stdout.readline().split()]

    return killed


def connected(run: Run, files: Files, *more: str) -> State:
    """What the files hold once the clients are connected."""
    assert run("connect", *files.clients, *more, "--write").status == 0
    return files.now()


def is_undone(run: Run, files: Files) -> None:
    """`disconnect` leaves every byte as it was, and nothing beside it."""
    assert run("disconnect", *files.clients).status == 0
    assert files.now() == files.before and files.beside() == []


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("goes_on", [True, False], ids=["then connect", "then disconnect"])
@pytest.mark.parametrize("connects_again", [False, True], ids=["first", "again"])
def test_connect_may_be_killed_at_every_step(
    run: Run, files: Files, kill: Kill, goes_on: bool, connects_again: bool, stride: int
) -> None:
    """The first time and over an entry of our own: what the next command does is as if there had been no kill."""
    begun = connected(run, files) if connects_again else files.before
    after = connected(run, files, "--http")
    is_undone(run, files)
    for step in count(1 + hash(run) % stride, stride):
        if connects_again:
            connected(run, files)
        (status,) = kill(step, words=("connect", *files.clients, "--http", "--write"))
        files.check(begun, after)
        if goes_on:
            assert connected(run, files, "--http") == after
        is_undone(run, files)
        if status != KILLED:
            break
    assert status == 0 and step > 40


@pytest.mark.parametrize("stride", STRIDES)
def test_disconnect_may_be_killed_at_every_step(run: Run, files: Files, kill: Kill, stride: int) -> None:
    """The next one finishes it."""
    after = connected(run, files)
    for step in count(1 + hash(run) % stride, stride):
        (status,) = kill(step, words=("disconnect", *files.clients))
        files.check(files.before, after)
        is_undone(run, files)
        if status != KILLED:
            break
        connected(run, files)
    assert status == 0 and step > 20


def test_one_of_two_at_once_may_be_killed(run: Run, files: Files, kill: Kill) -> None:
    """The other one does its work, or says that the file was changed meanwhile; it never waits for the dead one."""
    after = connected(run, files)
    is_undone(run, files)
    ends = []
    for step in range(1, 80, 6):
        dead, other = kill(step, NEVER, words=("connect", *files.clients, "--write"))
        files.check(files.before, after)
        assert other in (0, 1)
        assert connected(run, files) == after
        is_undone(run, files)
        ends.append(dead)
    assert ends.count(KILLED) > 5, ends  # the later steps are those of whom is first


@pytest.mark.parametrize("kills", [8, pytest.param(60, marks=pytest.mark.soak)])
def test_a_real_process_may_be_killed_at_any_moment(run: Run, home: Path, kills: int) -> None:
    """From outside, at moments spread over the time that the whole command takes."""
    files = Files(home / "home", *FILES)
    after = connected(run, files)
    is_undone(run, files)
    command = [*PROGRAM, "connect", *files.clients, "--write"]
    env = environment(home / "data") | {"HOME": str(home / "home")}
    begun_s = time.monotonic()
    subprocess.run(command, cwd=home, env=env, check=True, capture_output=True)
    lasts_s = time.monotonic() - begun_s
    is_undone(run, files)
    for number in range(kills):
        process = subprocess.Popen(command, cwd=home, env=env, stderr=subprocess.DEVNULL)
        try:
            process.wait(lasts_s * (number + 1) / kills)
        except subprocess.TimeoutExpired:
            process.kill()
        assert process.wait() in (0, KILLED)
        files.check(files.before, after)
        if number % 2:
            assert connected(run, files) == after
        is_undone(run, files)
