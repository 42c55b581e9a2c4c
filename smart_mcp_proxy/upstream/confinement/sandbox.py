"""Starts a server in a sandbox, by what the system has for it."""

import asyncio
import logging
import os
import re
import socket
from asyncio import SubprocessTransport
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeVar

from msgspec.structs import asdict

from smart_mcp_proxy.desktop.places import CONFIG_NAME, open_folder_mark
from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import hash_text
from smart_mcp_proxy.servers import ServerConfig, explain_isolation
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.upstream.confinement.bubblewrap import STEERS_LOADER, find_bubblewrap, open_system_files, wrap
from smart_mcp_proxy.upstream.confinement.host_proxy import HostProxy, refuse_hosts
from smart_mcp_proxy.upstream.confinement.kernel import (
    INTERNET,
    INTERNET_6,
    LOCAL,
    NETLINK,
    SCOPED_FROM,
    KernelRules,
    confine_thread,
    hide_abstract_sockets,
    landlock_version,
    list_gaps,
    socket_filter,
)
from smart_mcp_proxy.upstream.confinement.limits import refuse_process_limit
from smart_mcp_proxy.upstream.confinement.macos import find_sandbox_exec, write_profile
from smart_mcp_proxy.upstream.confinement.places import DEVICES
from smart_mcp_proxy.upstream.confinement.reach import (
    PrivateFolder,
    ServerReach,
    Shelter,
    choose_private_folder,
    make_private_folder,
    name_reach,
    plan_reach,
)
from smart_mcp_proxy.upstream.confinement.spawn import start_confined

_log = get_logger("upstream")
_Protocol = TypeVar("_Protocol", bound=SubprocessStreamProtocol)
Way = Literal["Landlock", "bubblewrap", "sandbox-exec"]


def find_way() -> Way | None:
    """Find the running system's sandbox; None if it has none.

    Landlock comes first: it costs no process and no time.
    """
    if landlock_version():
        return "Landlock"
    if find_bubblewrap():
        return "bubblewrap"
    return "sandbox-exec" if find_sandbox_exec() else None


def describe_gaps() -> list[str]:
    """Gaps of a sandbox here, by the age of the kernel."""
    version = landlock_version()
    gaps = list_gaps(version) if version else []
    if version < SCOPED_FROM and find_bubblewrap():
        gaps.append("a browser, or one that is allowed a socket, can connect to your programs' abstract sockets")
    return gaps


async def start_in_sandbox(
    protocol_factory: Callable[[], _Protocol],
    config: ServerConfig,
    command: Sequence[str],
    environ: Mapping[str, str],
    shelter: Shelter | None,
    proxy: HostProxy | None = None,
) -> tuple[SubprocessTransport, _Protocol]:
    """Start a server's command as `loop.subprocess_exec` does.

    Args:
        protocol_factory: Makes what is told of its output.
        config: The server, expanded.
        command: Its own, with its limits.
        environ: What its process would be started with outside.
        shelter: Keeps private folders.
        proxy: Its way out, where its entry lists hosts.

    Raises:
        OSError: It cannot be started.
        UpstreamError: The system has no sandbox, or none that keeps to hosts.
    """
    reach = await asyncio.to_thread(prepare_reach, config, environ, shelter)
    way = await asyncio.to_thread(_choose_way, config, reach)
    if way == "sandbox-exec":
        held = (str(find_sandbox_exec()), "-p", write_profile(reach), *command)
        start_here = asyncio.get_running_loop().subprocess_exec
        return await start_here(protocol_factory, *held, env=reach.variables, cwd=reach.cwd, start_new_session=True)
    has_sockets = reach.has_sockets or (reach.has_own_world and way == "bubblewrap")
    families = (NETLINK, *((INTERNET, INTERNET_6) if reach.network else ()), *((LOCAL,) if has_sockets else ()))
    if way == "Landlock":
        rules = KernelRules(reach.read, reach.write, reach.listed, DEVICES, families)
        confine = partial(confine_thread, rules)
        return await start_confined(protocol_factory, command, confine, reach.variables, reach.cwd)
    program = find_bubblewrap()
    assert program is not None
    filter_fd = os.memfd_create("socket filter", 0)
    with os.fdopen(filter_fd, "w+b", buffering=0) as filter_, open_system_files(reach) as files:
        filter_.write(socket_filter(families))
        filter_.seek(0)
        words, handed = wrap(program, reach, command, filter_fd, files), (filter_fd, *files.values())
        outside = {name: text for name, text in reach.variables.items() if not re.fullmatch(STEERS_LOADER, name)}
        start = partial(start_confined, protocol_factory, confine=hide_abstract_sockets, cwd=None)
        if proxy is None:
            return await start(words, environ=outside, pass_fds=handed)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                words, handed = proxy.lead(words, theirs.fileno()), (*handed, theirs.fileno())
                started = await start(words, environ=proxy.variables(outside), pass_fds=handed, on_end=proxy.close)
            try:
                await proxy.serve(ours)
            except UpstreamError:
                started[0].close()
                await proxy.ended.wait()
                raise
            return started


def _choose_way(config: ServerConfig, reach: ServerReach) -> Way:
    """Choose bubblewrap for what Landlock opens to all or none: sockets, shared memory, processes, hosts.

    Raises:
        UpstreamError: The system has no sandbox, or none that keeps to the entry.
    """
    is_counted, lists_hosts = config.process_limits.processes is not None, not isinstance(reach.network, bool)
    needs_bubblewrap = is_counted or lists_hosts or reach.has_own_world
    way: Way | None = "bubblewrap" if needs_bubblewrap and find_bubblewrap() else find_way()
    if way is None:
        raise _refuse_unconfined(config)
    if is_counted and way != "bubblewrap":
        raise refuse_process_limit(config)
    if lists_hosts and way != "bubblewrap":
        raise refuse_hosts(config.name, "bubblewrap, which keeps to them, is not installed or may not be used")
    return way


def prepare_reach(config: ServerConfig, environ: Mapping[str, str], shelter: Shelter | None) -> ServerReach:
    """Plan the reach of a server, and make its private folder."""
    folder = _make_folder(config, shelter)
    reach = plan_reach(config, environ, folder)
    make_private_folder(folder, reach.links)
    _tell_reach(config, folder)
    _mark_folder(reach, folder)
    return reach


def _mark_folder(reach: ServerReach, folder: PrivateFolder) -> None:
    """Mark the working directory if the server may make the server file that the next start finds there."""
    file = Path.cwd() / CONFIG_NAME
    mark = Path(open_folder_mark(str(folder.path.parents[1]), str(file.parent)))
    with suppress(OSError):  # where nothing can be kept, nothing is
        if not {file, file.resolve()}.isdisjoint(folder.guarded):
            mark.unlink(missing_ok=True)  # its user has named it, and no server changes it from now on
        elif any(file.resolve().is_relative_to(path) for path in reach.write):
            mark.touch(mode=0o600)


def _make_folder(config: ServerConfig, shelter: Shelter | None) -> PrivateFolder:
    if shelter is not None:
        try:
            folder = choose_private_folder(shelter, config.name)
            make_private_folder(folder, {})
        except OSError as exc:
            _log.warning("server %s has a private folder that ends with the gateway: %s", config.name, exc)
        else:
            return folder
    guarded = () if shelter is None else shelter.guarded
    return choose_private_folder(Shelter(Path(_temporary_root().name), guarded), config.name)


def _tell_reach(config: ServerConfig, folder: PrivateFolder) -> None:
    """Log what of the user's a server reaches: at its first start, and once that is another."""
    words = explain_isolation("sandbox", asdict(name_reach(config)))
    told, mark = folder.path.with_name(f"{folder.path.name}.told"), hash_text(words)
    if _log.isEnabledFor(logging.INFO) and not (told.exists() and told.read_bytes() == mark):
        _log.info("server %s: %s", config.name, words)
        with suppress(OSError):  # then it is told again
            told.write_bytes(mark)


@cache
def _temporary_root() -> TemporaryDirectory[str]:
    """Place of private folders if the data directory cannot be written."""
    return TemporaryDirectory(prefix="mcpproxy-")


def _refuse_unconfined(config: ServerConfig) -> UpstreamError:
    """The error for a server that is not started without a sandbox."""
    return UpstreamError(
        f"Server '{config.name}' is to run in a sandbox, and this system has none: its kernel has no Landlock, and "
        "bubblewrap is not installed or may not be used.",
        hint='Install bubblewrap, or let it run with your rights: "isolation": "none" in its entry.',
    )
