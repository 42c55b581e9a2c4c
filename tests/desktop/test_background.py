"""The gateway in the background takes nothing of the client that happened to start it, and knows who may join."""

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from desks import DEADLINE_S, HELLO, PROGRAM, Desk, read_environ, read_status, until
from fake_gateways import listening
from full_disks import ON_FULL_DISK

from smart_mcp_proxy.desktop import alone, places
from smart_mcp_proxy.desktop.joining import Place
from smart_mcp_proxy.desktop.places import sockets_folder

pytestmark = pytest.mark.anyio
SOILED = """
import os, resource, signal, sys
os.umask(0)
os.setpgid(0, 0)
for each in range(2):
    os.dup2(int(sys.argv[1]), 900 + each, inheritable=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
resource.setrlimit(resource.RLIMIT_CPU, (500, resource.getrlimit(resource.RLIMIT_CPU)[1]))
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2])
os.execv(sys.argv[2], sys.argv[2:])
"""
OWN = "This client has a gateway of its own"


def read_open_files(pid: int) -> set[str]:
    """The files that a process has open; it may close one meanwhile."""
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(each))
    return found


@pytest.mark.long  # starts a gateway, seconds of it
async def test_nothing_of_the_starter_is_taken(desk: Desk, tmp_path: Path) -> None:
    """Session, group, folder, files, umask, limits, processors, signals and secrets of the starter stay with it."""
    with (tmp_path / "kept").open("w") as kept:
        number = kept.fileno()
        program = (sys.executable, "-S", "-c", SOILED, str(number), *PROGRAM, "serve")
        client = await desk.start(program=program, kept=[number], DESK_SECRET="secret", cwd=tmp_path)
    try:
        await client.greet()
        await client.text()
        gateway = await desk.gateway()
        (server,) = desk.servers()
        assert OWN not in desk.stderr
        assert os.getsid(gateway) not in (os.getsid(0), os.getsid(client.pid))
        assert os.getpgid(gateway) not in (os.getpgid(0), os.getpgid(client.pid), client.pid)
        assert os.readlink(f"/proc/{gateway}/cwd") == str(desk.home)
        for pid in (gateway, server):
            opened = read_open_files(pid)
            assert str(tmp_path / "kept") not in opened
            assert "DESK_SECRET" not in read_environ(pid)
        status = read_status(gateway)
        assert status["Umask"] == "0022"
        assert int(status["SigBlk"], 16) == 0
        ignored = {number for number in signal.valid_signals() if int(status["SigIgn"], 16) >> number - 1 & 1}
        assert ignored <= {signal.SIGPIPE, signal.SIGXFSZ}  # as Python has it; the C library keeps 32 and 33 for itself
        for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU):
            soft, hard = resource.prlimit(gateway, limit)
            assert soft == hard
        assert os.sched_getaffinity(gateway) == os.sched_getaffinity(0)
        assert (desk.data_dir / "run").stat().st_mode & 0o777 == 0o700
        assert all(each.stat().st_mode & 0o077 == 0 for each in (desk.data_dir / "run").iterdir())
        client.process.kill()
        assert await client.process.wait() == -signal.SIGKILL
        os.kill(gateway, 0)
    finally:
        await client.end()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="drops privileges as root")
async def test_a_client_in_a_sandbox_stays_alone(desk: Desk) -> None:
    """A client that the first process of the system does not share the limits of says so, and stays alone."""
    if read_status(1)["NoNewPrivs"] != "0":
        pytest.skip("everything here runs without new privileges")
    async with desk.client(program=("setpriv", "--no-new-privs", *PROGRAM, "serve")) as client:
        client.ask("initialize", HELLO)
        await until(lambda: f"{OWN}: the client runs it in a sandbox (no new privileges).\n" in desk.stderr)
        assert desk.processes() == [client.pid]


def test_what_confines_a_client_is_seen_in_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit counts that the first process has not; where there is no /proc, none is seen."""
    files: dict[str, list[str]] = {}
    monkeypatch.setattr(alone, "_read_lines", lambda path: files.get(path, []))
    assert alone.find_reason_to_stay_alone({}, []) is None
    files |= {"/proc/self/status": ["NoNewPrivs:\t1\n", "Seccomp:\t2\n"], "/proc/1/status": ["NoNewPrivs:\t1\n"]}
    assert alone.find_reason_to_stay_alone({}, []) is None  # a container, all of it
    files["/proc/1/status"] = ["NoNewPrivs:\t1\n", "Seccomp:\t0\n"]
    assert alone.find_reason_to_stay_alone({}, []) == "the client runs it in a sandbox (seccomp)"
    files.clear()
    files["/proc/self/uid_map"] = ["         0       1000          1\n"]
    assert alone.find_reason_to_stay_alone({}, []) == "the client runs it in a sandbox (a user namespace)"
    assert alone.find_reason_to_stay_alone({"APP_SANDBOX_CONTAINER_ID": "x"}, []) is not None


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (["serve", "--alone"], {}),
        (["serve"], {"MCPPROXY_SHARED": " FALSE "}),
        (["serve", "--http"], {}),
        (["serve", "--passthrough", "up"], {}),
        (["serve", "--passthrough=up"], {}),
        (["serve", "--config"], {}),
        (["serve"], {"MCPPROXY_TRANSPORT": "http"}),
        (["serve"], {alone.STARTED_BY: "1:x"}),
    ],
)
def test_who_is_alone_without_a_word(words: list[str], variables: dict[str, str]) -> None:
    """One that wants it, serves another way, or is a server of a gateway itself asks no gateway and says nothing."""
    assert alone.find_reason_to_stay_alone(variables, words) == ""


def test_long_paths_have_short_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data directory whose path is too long for a socket has a folder of its own in /tmp, whatever the umask is."""
    long = [str(tmp_path / ("x" * 100) / name) for name in ("a", "b")]
    folders = [places.sockets_folder(each) for each in long]
    assert len(set(folders)) == 2
    assert all(len(places.shared_socket(each, "/y" * 999).encode()) < 104 for each in long)
    assert places.sockets_folder("/home/somebody/.mcpproxy") == "/home/somebody/.mcpproxy/run"


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Neither a folder of another user, nor one that others can write to, nor a link to one is used."""
    folder = f"/tmp/mcpproxy-test-{os.getpid()}"
    before = os.umask(0)
    try:
        places.make_private(f"{folder}/x")
        assert [os.stat(each).st_mode & 0o777 for each in (folder, f"{folder}/x")] == [0o700, 0o700]
        places.make_private(f"{folder}/x")
        os.chmod(folder, 0o770)
        with pytest.raises(PermissionError):
            places.make_private(f"{folder}/x")
        os.chmod(folder, 0o700)
        if os.geteuid() == 0:
            os.chown(folder, 12345, -1)
            with pytest.raises(PermissionError):
                places.make_private(f"{folder}/x")
            os.chown(folder, 0, -1)
        os.rmdir(f"{folder}/x")
        os.symlink(tmp_path, f"{folder}/x")
        with pytest.raises(PermissionError):
            places.make_private(f"{folder}/x")
        os.unlink(f"{folder}/x")
    finally:
        os.umask(before)
        with contextlib.suppress(OSError):
            os.rmdir(f"{folder}/x")
        os.rmdir(folder)


@pytest.mark.long
async def test_two_long_paths_have_two_gateways(desk: Desk, tmp_path: Path) -> None:
    """On data directories of long paths clients meet as on others, and only those of the same directory."""
    clients, made = [], set()
    try:
        for name in ("a", "b", "a"):
            folder = tmp_path / ("x" * 100) / name
            folder.mkdir(parents=True, exist_ok=True)
            clients.append(await desk.start("--config", str(desk.server_file), MCPPROXY_DATA_DIR=str(folder)))
            await clients[-1].greet()
            made.add(Path(sockets_folder(str(folder))))
        texts = [await each.text() for each in clients]
        assert texts[0] == texts[2] != texts[1]
        assert len(desk.gateways()) == 2
        assert OWN not in desk.stderr
    finally:
        for each in clients:
            await each.end()
        for each in made:
            shutil.rmtree(each)


@pytest.mark.long  # starts a gateway, seconds of it
async def test_a_gateway_of_another_place_is_not_joined(desk: Desk) -> None:
    """A socket that leads to a gateway of another data directory, server file or network is not enough to join it."""
    async with desk.client() as client:
        await client.greet()
        await desk.gateway()
        hello = json.loads(Place([], desk.environ()).hello())["join"] | {"directory": str(desk.home)}
        places = (
            ("data_dir", "/elsewhere", "has its data in"),
            ("source", "/elsewhere", "reads its servers"),
            ("network", hello["network"] + 1, "another network namespace"),
        )
        for changed, value, why in places:
            for stays in (False, True):  # a gateway that asks for room is in a place as well
                said = json.dumps({"join": hello | {changed: value, "stays": stays}}).encode() + b"\n"
                assert why in json.loads(_say(desk.socket, said))["alone"]


def _say(path: str, data: bytes, size: int = 100_000) -> bytes:
    """What a gateway answers at first; empty if it says nothing."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(DEADLINE_S)
        link.connect(path)
        try:
            link.sendall(data)
            return link.recv(size)
        except ConnectionError:
            return b""


@pytest.mark.long  # a third of a second of processor time
async def test_nonsense_on_the_socket_harms_nobody(desk: Desk) -> None:
    """What is no greeting ends its connection alone; neither 200 silent connections nor long lines hold a client up."""
    odd = [
        b"nonsense\n",
        b"{}\n",
        b'{"join": []}\n',
        b'{"join": {}}\n',
        b"\0\n",
        b"[1]\n",
        b'{"join": {"version": 1, "pid": "x", "directory": 5, "source": null, "profile": [], "settings": {"X": 5}}}\n',
        b"x" * 3_000_000,
        b'{"join": ' + b"[" * 100_000 + b"\n",
        b"\xff\xff\n",
    ]
    async with desk.client() as client:
        await client.greet()
        await client.text()
        for each in odd:
            assert await asyncio.to_thread(_say, desk.socket, each) == b""
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(_connected(desk.socket))
            await client.text()
            async with desk.client() as second:
                await second.greet()
                await second.text()
        await client.text()
        gateway = await desk.gateway()
        with _connected(desk.socket) as silent:
            silent.sendall(b'{"join": ')
            os.kill(gateway, signal.SIGTERM)
            await until(lambda: not desk.gateways(), 5)
        assert "background task" not in desk.log


@contextlib.contextmanager
def _connected(path: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        yield link


@pytest.mark.long
async def test_a_gateway_without_descriptors_goes_on_later(desk: Desk) -> None:
    """A gateway that can open nothing more serves who is there, and lets others in once it can again."""
    async with desk.client() as client:
        await client.greet()
        await client.text()
        gateway = await desk.gateway()
        count = len(os.listdir(f"/proc/{gateway}/fd"))
        resource.prlimit(gateway, resource.RLIMIT_NOFILE, (count + 5, count + 5))
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(_connected(desk.socket))
            await until(lambda: "a client waits to join" in desk.log)
            await client.text()
        async with desk.client() as second:
            await second.greet()
            await second.text()
        assert len(desk.gateways()) == 1


@pytest.mark.long
async def test_a_long_hello_is_read(desk: Desk, tmp_path: Path) -> None:
    """Neither servers in a variable nor a folder that is no UTF-8 keep clients from meeting."""
    content = {"mcpServers": {"up": {**desk.entry(), "trust": "trusted"}}, "x-note": "ü" * 60_000}
    text = json.dumps(content, ensure_ascii=False)
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    clients = []
    try:
        for _ in range(2):
            clients.append(await desk.start(cwd=folder, MCPPROXY_CONFIG_JSON=text))
            await clients[-1].greet()
        assert len({await each.text() for each in clients}) == 1
        assert len(desk.gateways()) == 1
        assert OWN not in desk.stderr
    finally:
        for each in clients:
            await each.end()


def _let_others_in(folder: Path) -> None:
    for each in folder.parents:
        if "desk-" in str(each):
            each.chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user as root")
@pytest.mark.long  # starts a gateway, seconds of it
async def test_two_users_never_meet(desk: Desk) -> None:
    """A gateway refuses connections of another user; a door refuses a gateway of another user."""
    async with desk.client() as client:
        await client.greet()
        await desk.gateway()
        program = (
            "import os, socket, sys\nlink = socket.socket(socket.AF_UNIX)\nos.setuid(65534)\n"
            "link.connect(sys.argv[1])\nlink.sendall(b'{}\\n')\nprint(link.recv(9))\n"
        )
        words = [sys.executable, "-S", "-c", program, desk.socket]
        denied = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)
        assert "PermissionError" in denied.stderr
        for each in [*Path(desk.socket).parents, Path(desk.socket)]:
            if each.is_relative_to(desk.folder):
                each.chmod(0o777)
        _let_others_in(desk.folder)
        refused = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)
        assert "Permission" not in refused.stderr, refused
        await until(lambda: "a connection of user 65534 was refused" in desk.log)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user as root")
async def test_a_door_refuses_a_gateway_of_another_user(desk: Desk) -> None:
    """A client whose socket somebody else listens at tells them nothing, says why, and stays alone."""
    Path(desk.socket).parent.mkdir(mode=0o700)
    program = (
        "import os, socket, sys\nlistener = socket.socket(socket.AF_UNIX)\nlistener.bind(sys.argv[1])\n"
        "os.setuid(65534)\nlistener.listen()\nprint(flush=True)\nlink, _ = listener.accept()\nprint(link.recv(9))\n"
    )
    words = [sys.executable, "-S", "-c", program, desk.socket]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None
        stranger.stdout.readline()
        async with desk.client() as client:
            client.ask("initialize", HELLO)
            await until(lambda: "own" in desk.stderr)
            assert f"{OWN}: {desk.socket}: The gateway at this socket is of user 65534.\n" in desk.stderr
        assert stranger.stdout.read() == b"b''\n"


@pytest.mark.long
async def test_a_socket_left_behind_is_taken_over(desk: Desk) -> None:
    """After kill -9 of the gateway its socket stays; the next client takes the place all the same."""
    async with desk.client() as first:
        await first.greet()
        os.kill(await desk.gateway(), signal.SIGKILL)
    await until(lambda: not desk.gateways())
    assert Path(desk.socket).exists()
    async with desk.client() as second:
        await second.greet()
        await second.text()
        assert OWN not in desk.stderr


@pytest.mark.long
async def test_a_disk_that_is_full_is_told_as_ever(desk: Desk) -> None:
    """Where nothing can be written, clients share a gateway that keeps nothing, and each answer says so."""
    program = (*ON_FULL_DISK, *PROGRAM, "serve")
    async with desk.client(program=program) as client, desk.client(program=program) as further:
        for each in (client, further):
            await each.greet()
            found = (await each.answer(each.search()))["result"]["structuredContent"]
            assert "the disk is full" in str(found["degraded"])
        gateway = await desk.gateway()
        assert resource.prlimit(gateway, resource.RLIMIT_FSIZE) == (0, 0)
        assert (desk.data_dir / "proxy.db").stat().st_size == 0


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user as root")
async def test_a_home_that_can_only_be_read(desk: Desk) -> None:
    """Where no socket can be made the client is told why, and is served alone if that can be."""
    _let_others_in(desk.data_dir)
    for each in (desk.data_dir, desk.home):
        each.chmod(0o555)
    async with desk.client(program=("setpriv", "--reuid=65534", "--clear-groups", *PROGRAM, "serve")) as client:
        client.ask("initialize", HELLO)
        await until(lambda: OWN in desk.stderr)
        assert f"{OWN}: {desk.data_dir}/run: Permission denied.\n" in desk.stderr
        await client.process.wait()
        assert client.process.returncode == 2


@pytest.mark.long
async def test_an_unusable_server_file_is_told_once(desk: Desk) -> None:
    """A server file that is no JSON ends each client's process with status 2 and one message, and leaves nothing."""
    desk.server_file.write_text("{")
    clients = await asyncio.gather(*(desk.start() for _ in range(3)))
    try:
        assert {await each.process.wait() for each in clients} == {2}
        assert desk.stderr.count(f"error: {desk.server_file}") == 3, desk.stderr
    finally:
        for each in clients:
            await each.end()
    await until(lambda: not desk.processes())


@pytest.mark.long  # starts a gateway, seconds of it
async def test_the_gateway_ends_when_its_socket_is_not_its_own(desk: Desk) -> None:
    """A gateway whose folder was removed does not take the socket of the one that came after it."""
    async with desk.client() as first:
        await first.greet()
        gateway = await desk.gateway()
        Path(desk.socket).unlink()
        async with listening(desk.socket) as other:
            os.kill(gateway, signal.SIGTERM)
            await until(lambda: not desk.gateways())
            async with desk.client() as second:
                second.ask("ping")
                await other.joined()


@pytest.mark.long  # figures of memory
async def test_a_gateway_with_one_server_stays_small(desk: Desk) -> None:
    """Three quarters of it are code: what few sessions need is loaded when one does."""
    async with desk.client() as client:
        await client.greet()
        await client.text()
        assert int(read_status(await desk.gateway())["VmRSS"].split()[0]) < 128 * 1024
        assert (await desk.run("status"))[0] == 0  # REST is loaded now
        assert await client.text()
