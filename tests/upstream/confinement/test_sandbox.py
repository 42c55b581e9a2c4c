"""What a server can open in a sandbox, by each way of making one, and for what it starts itself."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from smart_mcp_proxy.desktop.places import server_files
from smart_mcp_proxy.errors import ConfigError, UpstreamError
from smart_mcp_proxy.servers import ServerConfig, find_config, isolate, list_guarded_places
from smart_mcp_proxy.servers.entry import parse_entry
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream.confinement import sandbox
from smart_mcp_proxy.upstream.confinement.bubblewrap import find_bubblewrap, open_system_files, wrap
from smart_mcp_proxy.upstream.confinement.kernel import landlock_version
from smart_mcp_proxy.upstream.confinement.reach import Shelter
from smart_mcp_proxy.upstream.stdio.stdio import ChildProcess

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not landlock_version(), reason="the kernel has no Landlock")]

PROBE = Path(__file__).with_name("probe_server.py")
LIMIT_S = 30
HOWS = ("self", "grandchild", "detached")


class Home:
    """A user's home with secrets, a data directory, and a sibling process.

    Args:
        folder: Empty.
        sibling: Process of another server.
        listener: A socket of the file system that the user's programs listen on.
    """

    def __init__(self, folder: Path, sibling: "subprocess.Popen[bytes]", listener: socket.socket) -> None:
        self.folder, self.sibling, self.listener = folder, sibling, listener
        self.data = folder / "data"
        self.work = folder / "work"
        self.keys = folder / ".ssh" / "id"
        for file in (self.keys, self.data / "proxy.db", self.work / "notes.txt", folder / "mcp_config.json"):
            file.parent.mkdir(exist_ok=True)
            file.write_text("x")
        self.socket = str(folder / "socket")
        listener.bind(self.socket)
        listener.listen()

    @property
    def environ(self) -> dict[str, str]:
        """What the gateway runs with."""
        return {"HOME": str(self.folder), "PATH": os.environ["PATH"]}

    def attempts(self, way: str) -> list[str]:
        """Attempts of a server at what is not its own."""
        files = (self.keys, self.data / "proxy.db", self.folder / "mcp_config.json")
        processes = (os.getpid(), self.sibling.pid)
        return [
            *(f"{kind}:{path}" for path in files for kind in ("read", "write")),
            # bubblewrap makes folders that lead to what it shows; nothing else is in them.
            *(f"list:{path}" for path in (self.folder, self.data, "/tmp") if way == "Landlock"),
            *(f"{kind}:{pid}" for pid in processes for kind in ("signal", "environment", "memory", "arguments")),
            f"socket:{self.socket}",
        ]

    def shelter(self) -> Shelter:
        """Where private folders are."""
        return Shelter(self.data / "sandbox", (self.data, self.folder / "mcp_config.json"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home, as long as the test runs."""
    with subprocess.Popen(["sleep", "600"]) as sibling, socket.socket(socket.AF_UNIX) as listener:
        yield Home(tmp_path, sibling, listener)
        sibling.kill()


@pytest.fixture(params=["Landlock", "bubblewrap"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the sandbox is made."""
    chosen: str = request.param
    if chosen == "bubblewrap":
        if find_bubblewrap() is None:
            pytest.skip("bubblewrap is not installed, or may not be used")
        monkeypatch.setattr(sandbox, "landlock_version", lambda: 0)
    else:
        monkeypatch.setattr(sandbox, "find_bubblewrap", lambda: None)
    return chosen


def probing(mode: str, **entry: Any) -> ServerConfig:
    """The probe as a server."""
    written = {"command": sys.executable, "args": [str(PROBE)], "isolation": mode, **entry}
    return isolate({"probe": parse_entry("probe", written)[0]}, "auto", {})["probe"]


@asynccontextmanager
async def started(config: ServerConfig, home: Home) -> AsyncIterator[ChildProcess]:
    """The server's process."""
    child = await ChildProcess.start(config, home.environ, lambda line: None, None, home.shelter())
    try:
        yield child
    finally:
        await child.close()


async def ask(child: ChildProcess, wanted: Sequence[str], how: str = "self") -> list[str]:
    """The attempts that succeed."""
    call = {"name": "probe", "arguments": {"wanted": list(wanted), "how": how}}
    await child.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode() + b"\n")
    text = b""
    while not text.endswith(b"\n"):
        more = await child.read()
        assert more, "it has ended"
        text += more
    found: list[str] = json.loads(json.loads(text)["result"]["content"][0]["text"])
    return found


@pytest.mark.parametrize("how", HOWS)
async def test_nothing_of_the_user_is_open_in_a_sandbox(home: Home, way: str, how: str) -> None:
    """Not to the server, nor to what it starts, nor to what leaves its session; without a sandbox nearly all is."""
    with anyio.fail_after(LIMIT_S):
        async with started(probing("none"), home) as child:
            assert set(await ask(child, home.attempts(way), how)) == set(home.attempts(way))
        async with started(probing("sandbox"), home) as child:
            assert await ask(child, home.attempts(way), how) == []


async def test_what_an_entry_names_can_be_read_and_written(home: Home, way: str) -> None:
    """Paths in arguments and variables, the working directory; not what lies beside them."""
    beside = home.folder / "beside.txt"
    beside.write_text("x")
    inside = [f"read:{home.work}/notes.txt", f"write:{home.work}/notes.txt"]
    with anyio.fail_after(LIMIT_S):
        for entry in (
            {"args": [str(PROBE), str(home.work)]},
            {"args": [str(PROBE), f"--folder={home.work}"]},
            {"env": {"FOLDER": str(home.work)}},
            {"cwd": str(home.work)},
        ):
            async with started(probing("sandbox", **entry), home) as child:
                assert await ask(child, [*inside, f"read:{beside}"]) == inside


async def test_allow_says_all_that_is_open(home: Home, way: str) -> None:
    """Also of what the arguments name; reading is not writing."""
    beside = home.folder / "beside.txt"
    beside.write_text("x")
    config = probing("sandbox", args=[str(PROBE), str(home.folder)], allow={"read": ["~/work"]})
    wanted = [f"read:{home.work}/notes.txt", f"write:{home.work}/notes.txt", f"read:{beside}"]
    with anyio.fail_after(LIMIT_S):
        async with started(config, home) as child:
            assert await ask(child, wanted) == wanted[:1]


async def test_a_whole_home_is_named_without_its_secrets(home: Home, way: str) -> None:
    """Hidden entries, the data directory and the server file stay closed."""
    with anyio.fail_after(LIMIT_S):
        async with started(probing("sandbox", args=[str(PROBE), str(home.folder)]), home) as child:
            found = await ask(child, [*home.attempts(way), f"write:{home.work}/notes.txt"])
    assert found == [f"write:{home.work}/notes.txt"]


async def test_it_starts_in_a_folder_that_it_may_not_read(
    home: Home, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway's, where a word of its entry stands for something there."""
    (home.folder / "tools").mkdir()
    monkeypatch.chdir(home.folder)
    with anyio.fail_after(LIMIT_S):
        async with started(probing("sandbox", args=[str(PROBE), "tools"]), home) as child:
            assert await ask(child, home.attempts(way)) == []


async def test_a_server_file_that_a_server_may_have_made_is_not_read(
    home: Home, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the folder that the gateway works in, until its user names it; then no server changes it."""
    monkeypatch.chdir(home.work)
    monkeypatch.setenv("MCPPROXY_DATA_DIR", str(home.data))
    planted, own = home.work / "mcp_config.json", home.data / "mcp_config.json"
    own.write_text("{}")
    settings = Settings(data_dir=home.data)
    config = probing("sandbox", allow={"write": [str(home.work)]})
    with anyio.fail_after(LIMIT_S):
        async with started(probing("sandbox", allow={"read": [str(home.work)]}), home):
            pass
        planted.write_text("{}")
        assert find_config(settings, home.work) == planted
        async with started(config, home) as child:
            assert await ask(child, [f"write:{planted}"]) == [f"write:{planted}"]
        with pytest.raises(ConfigError, match="a server in the sandbox could write it"):
            find_config(settings, home.work)
        assert server_files([], os.environ) == [str(own)]
        named = Settings(data_dir=home.data, config_path=planted)
        places = list_guarded_places(named, home.work)
        child = await ChildProcess.start(config, home.environ, print, None, Shelter(home.data / "sandbox", places))
        try:
            assert await ask(child, [f"write:{planted}", f"write:{home.work}/notes.txt"]) == [
                f"write:{home.work}/notes.txt"
            ]
        finally:
            await child.close()
        assert find_config(settings, home.work) == planted


async def test_neither_links_nor_handles_lead_to_what_is_closed(home: Home, way: str) -> None:
    """Nor does another process's view of the files, or a file that it holds open."""
    wanted = [
        *(f"{kind}:{path}" for path in (home.keys, home.data / "proxy.db") for kind in ("link", "symlink")),
        *(f"{kind}:{pid}" for pid in (os.getpid(), home.sibling.pid) for kind in ("root", "descriptor")),
    ]
    with anyio.fail_after(LIMIT_S):
        async with started(probing("none"), home) as child:
            assert await ask(child, wanted) == wanted
        async with started(probing("sandbox"), home) as child:
            assert await ask(child, [*wanted, "inherited:3", "write:/dev/tty"]) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities")
async def test_root_keeps_none_of_its_powers_over_the_system(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among them those that see other processes; files of others can be changed where they are open."""
    monkeypatch.setattr(sandbox, "find_bubblewrap", lambda: None)
    with anyio.fail_after(LIMIT_S):
        async with started(probing("sandbox", allow={"read": ["/proc"], "write": ["~/work"]}), home) as child:
            os.chown(home.work / "notes.txt", 65534, 65534)
            wanted = [f"write:{home.work}/notes.txt", f"environment:{home.sibling.pid}"]
            assert await ask(child, wanted) == wanted[:1]


async def test_the_network_can_be_closed(home: Home, way: str) -> None:
    """Else it is open, this machine's addresses included."""
    with socket.create_server(("127.0.0.1", 0)) as listener, anyio.fail_after(LIMIT_S):
        port = f"port:{listener.getsockname()[1]}"
        async with started(probing("sandbox"), home) as child:
            assert await ask(child, [port]) == [port]
        async with started(probing("sandbox", allow={"network": False}), home) as child:
            assert await ask(child, [port]) == []


async def test_a_socket_can_be_allowed(home: Home, way: str) -> None:
    """An ssh agent's, for example."""
    with anyio.fail_after(LIMIT_S):
        async with started(probing("sandbox", allow={"read": [home.socket]}), home) as child:
            assert await ask(child, [f"socket:{home.socket}"]) == [f"socket:{home.socket}"]


@pytest.mark.skipif(find_bubblewrap() is None, reason="bubblewrap is not installed, or may not be used")
async def test_a_socket_that_is_allowed_opens_no_other_one_where_bubblewrap_is_installed(home: Home) -> None:
    """It shows those alone that are named; also of the kind that has no file."""
    with socket.socket(socket.AF_UNIX) as beside, socket.socket(socket.AF_UNIX) as abstract:
        name = f"mcpproxy-test-{os.getpid()}"
        for listener, address in ((beside, f"{home.folder}/beside"), (abstract, f"\0{name}")):
            listener.bind(address)
            listener.listen()
        wanted = [f"socket:{home.socket}", f"socket:{home.folder}/beside", f"abstract:{name}"]
        with anyio.fail_after(LIMIT_S):
            async with started(probing("none"), home) as child:
                assert await ask(child, wanted) == wanted
            async with started(probing("sandbox", allow={"read": [home.socket]}), home) as child:
                assert await ask(child, wanted) == wanted[: 1 if landlock_version() >= 6 else 3 : 2]


@pytest.mark.skipif(find_bubblewrap() is None, reason="bubblewrap is not installed, or may not be used")
@pytest.mark.parametrize(
    "entry",
    [{"allow": {"read": ["/proc"], "write": ["/dev/shm"]}}, {"args": [str(PROBE), "@playwright/mcp@1"]}],
    ids=["allowed", "by its profile"],
)
async def test_a_server_can_have_processes_and_shared_memory_of_its_own(home: Home, entry: dict[str, Any]) -> None:
    """Those of others stay closed."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as shared, anyio.fail_after(LIMIT_S):
        async with started(probing("sandbox", **entry), home) as child:
            own = ["read:/proc/self/stat", "list:/dev/shm", "list:/tmp"]
            wanted = [*own, f"read:{shared.name}", *home.attempts("bubblewrap")]
            assert await ask(child, wanted) == own


@pytest.mark.skipif(find_bubblewrap() is None, reason="bubblewrap is not installed, or may not be used")
async def test_with_bubblewrap_nothing_outlives_a_server(home: Home) -> None:
    """Not even what has left its session; here it holds a pipe that ends with the last of its writers."""
    pipe = home.work / "pipe"
    os.mkfifo(pipe)
    script = f"exec 3>{pipe}; setsid sleep 600 & echo; cat"
    config = probing("sandbox", command="sh", args=["-c", script], allow={"write": [str(home.work), "/dev/shm"]})
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, pipe.read_bytes)
            async with started(config, home) as child:
                assert await child.read() == b"\n"


async def test_landlock_keeps_other_processes_closed_where_proc_is_allowed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their arguments are open then, and figures of the server itself."""
    monkeypatch.setattr(sandbox, "find_bubblewrap", lambda: None)
    with anyio.fail_after(LIMIT_S):
        async with started(probing("sandbox", allow={"read": ["/proc"]}), home) as child:
            found = await ask(child, ["read:/proc/self/stat", *home.attempts("Landlock")])
    assert found == ["read:/proc/self/stat", *(f"arguments:{pid}" for pid in (os.getpid(), home.sibling.pid))]


async def test_a_server_that_asks_for_a_sandbox_is_never_started_without(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what is missing and what can be done."""
    monkeypatch.setattr(sandbox, "landlock_version", lambda: 0)
    monkeypatch.setattr(sandbox, "find_bubblewrap", lambda: None)
    with pytest.raises(UpstreamError, match="this system has none") as caught:
        await ChildProcess.start(probing("sandbox"), home.environ, lambda line: None)
    assert '"isolation": "none"' in caught.value.hint


@pytest.mark.parametrize("allowed", [[], ["/etc"]], ids=["each", "with their folder"])
async def test_files_of_the_system_can_be_read(home: Home, way: str, allowed: list[str]) -> None:
    """Users and name resolution rest on them; `bubblewrap` copies them, unless their folder is there."""
    files = [file for file in map(Path, ("/etc/passwd", "/etc/hosts", "/etc/nsswitch.conf")) if file.is_file()]
    config = probing("sandbox", command="cat", args=list(map(str, files)), allow={"read": allowed})
    text = b""
    with anyio.fail_after(LIMIT_S):
        async with started(config, home) as child:
            while more := await child.read():
                text += more
    assert text == b"".join(file.read_bytes() for file in files)


def test_nothing_is_copied_into_a_folder_that_is_mounted(home: Home) -> None:
    """It would come into the user's own."""
    reach = sandbox.prepare_reach(probing("sandbox", allow={"write": ["/etc"]}), home.environ, home.shelter())
    with open_system_files(reach) as files:
        assert "/etc/passwd" in files
        assert "--file" not in wrap("bwrap", reach, ["true"], 3, files)


async def test_its_home_is_its_own_and_stays(home: Home, way: str) -> None:
    """It is kept between starts; what the entry allows of the user's stands at its usual place."""
    config = probing("sandbox", allow={"write": ["~/work"]})
    with anyio.fail_after(LIMIT_S):
        async with started(config, home) as child:
            (private,) = (home.data / "sandbox").iterdir()
            assert (private / "work").readlink() == home.work
            wanted = [f"write:{private}/work/notes.txt", f"list:{private}", f"list:{private}/tmp"]
            assert await ask(child, wanted) == wanted
    assert private.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_git_finds_who_commits_and_credentials_that_are_allowed(home: Home, way: str) -> None:
    """With the user's own settings, which name the helper."""
    settings = "[user]\n\tname = Ann\n\temail = ann@example.com\n[credential]\n\thelper = store\n"
    (home.folder / ".gitconfig").write_text(settings)
    (home.folder / ".git-credentials").write_text("https://ann:harmless@example.com\n")
    asked = "printf 'protocol=https\\nhost=example.com\\n\\n' | git credential fill"
    entry = {
        "command": "sh",
        "args": ["-c", f"git var GIT_AUTHOR_IDENT; {asked}; echo end"],
        "allow": {"read": ["~/.git-credentials"]},
    }
    text = b""
    with anyio.fail_after(LIMIT_S):
        async with started(probing("sandbox", **entry), home) as child:
            while not text.endswith(b"end\n"):
                text += await child.read()
    assert b"Ann <ann@example.com>" in text and b"password=harmless" in text


@pytest.mark.skipif(not all(map(shutil.which, ("dbus-daemon", "dbus-send"))), reason="D-Bus is not installed")
async def test_a_session_bus_is_reached_where_its_socket_is_allowed(home: Home, way: str) -> None:
    """As the documentation says it of a keyring; without that the socket is closed."""
    ask = (
        "dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.GetId >&1 2>&1; echo end"
    )
    address = f"unix:path={home.folder}/bus"
    words = ["dbus-daemon", "--session", "--nofork", f"--address={address}", "--print-address"]
    entry = {"command": "sh", "args": ["-c", ask], "env": {"DBUS_SESSION_BUS_ADDRESS": address}}
    with subprocess.Popen(words, stdout=subprocess.PIPE) as bus, anyio.fail_after(LIMIT_S):
        assert bus.stdout is not None and bus.stdout.readline()
        for allow, is_reached in (({"read": [f"{home.folder}/bus"]}, True), ({}, False)):
            text = b""
            async with started(probing("sandbox", **entry, allow=allow), home) as child:
                while not text.endswith(b"end\n"):
                    text += await child.read()
            assert (b"method return" in text) == is_reached, text
        bus.kill()


async def test_what_it_reaches_is_told_at_its_first_start(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """Once in the log, and again where that is another by then."""
    entries = ({"cwd": str(home.work)}, {"cwd": str(home.work)}, {"allow": {"read": ["~/work"], "network": False}})
    with anyio.fail_after(LIMIT_S), caplog.at_level("INFO", "mcpproxy.upstream"):
        for entry in entries:
            async with started(probing("sandbox", **entry), home):
                pass
    first, other = (record.getMessage() for record in caplog.records)
    assert f"It runs in a sandbox. Of your files it may change {home.work}" in first
    assert "it may read ~/work; it may not open network connections" in other


async def test_where_the_log_tells_nothing_the_first_start_is_told_later(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    """A command that starts the server once for itself shows no such lines."""
    with anyio.fail_after(LIMIT_S):
        for level in ("WARNING", "INFO"):
            with caplog.at_level(level, "mcpproxy.upstream"):
                async with started(probing("sandbox"), home):
                    pass
    assert len(caplog.records) == 1


CALLS = """
import json, os, resource, socket
def tried(call, *words):
    try:
        call(*words)
    except OSError as error:
        return error.errno
print(json.dumps([
    tried(resource.prlimit, 0, resource.RLIMIT_NOFILE, (64, 64)),
    tried(resource.prlimit, %d, resource.RLIMIT_CORE, (0, 0)),
    tried(socket.socketpair, socket.AF_UNIX, socket.SOCK_STREAM),
    tried(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM),
    tried(socket.socketpair, socket.AF_UNIX, socket.SOCK_RAW),
]))
"""


async def test_calls_that_reach_beyond_the_sandbox_are_refused(home: Home, way: str) -> None:
    """Limits of other processes, and pairs of sockets that can be led elsewhere; its own are not."""
    config = probing("sandbox", args=["-c", CALLS % (os.getpid() if way == "Landlock" else 1)])
    with anyio.fail_after(LIMIT_S):
        async with started(config, home) as child:
            found = json.loads(await child.read())
    assert found == [None, errno.EPERM, None, errno.EACCES, errno.EACCES]


async def test_what_an_entry_has_loaded_is_loaded_inside(home: Home, way: str) -> None:
    """Not into bubblewrap, which nothing confines: the loader complains once, of the server's own program."""
    said: list[str] = []
    config = probing("sandbox", command="cat", args=[], env={"LD_PRELOAD": f"{home.work}/not-there.so"})
    with anyio.fail_after(LIMIT_S):
        child = await ChildProcess.start(config, home.environ, said.append, None, home.shelter())
        await child.write(b"x\n")
        assert await child.read() == b"x\n"
        await child.close()
    assert len([line for line in said if "cannot be preloaded" in line]) == 1


@pytest.mark.skipif(find_bubblewrap() is None, reason="bubblewrap is not installed, or may not be used")
def test_bubblewrap_is_found_once_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a gateway that looked for it before."""
    with monkeypatch.context() as without:
        without.setenv("PATH", "/nowhere")
        assert find_bubblewrap() is None
    assert find_bubblewrap() is not None


def test_what_older_kernels_leave_open_beside_bubblewrap_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether Landlock or bubblewrap is what servers run in."""
    monkeypatch.setattr(sandbox, "find_bubblewrap", lambda: "/usr/bin/bwrap")
    for version, count in ((0, 1), (5, 2), (6, 0)):
        monkeypatch.setattr(sandbox, "landlock_version", lambda version=version: version)
        gaps = sandbox.describe_gaps()
        assert len(gaps) == count and all("sockets" in gap for gap in gaps[-1:])
