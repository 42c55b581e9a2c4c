"""Containers for servers, made by docker or podman."""

import asyncio
import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, TimeoutExpired, run
from typing import Final, NamedTuple

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream.confinement.limits import container_limits
from smart_mcp_proxy.upstream.confinement.places import OF_THE_HOST, STEERS_ENGINES
from smart_mcp_proxy.upstream.confinement.reach import ServerReach, Shelter
from smart_mcp_proxy.upstream.confinement.sandbox import prepare_reach

_NODE: Final = "docker.io/library/node:22.21-bookworm-slim"
_UV: Final = "ghcr.io/astral-sh/uv:0.9-python3.13-bookworm-slim"
IMAGES: Final = {
    **dict.fromkeys(("node", "npm", "npx"), _NODE),
    **dict.fromkeys(("uv", "uvx", "python", "python3"), _UV),
}
"""Image by the name of a command. It has both of them: the path of ours means nothing in it."""
_QUESTIONS: Final = {"docker": "{{.SecurityOptions}}", "podman": "{{.Host.OS}}"}
"""Part of an engine's `info` that is asked for: the whole takes its time."""
_TRIAL_S: Final = 20.0
_PODMAN_INITS: Final = ("/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit", "/usr/bin/catatonit")
_STOP_S: Final = 1
_REMOVAL_S: Final = 20.0
_PLACES: Final = ("HOME", "TMPDIR")
"""Variables that mean other places to the engine; no secrets."""
LABEL: Final = "dev.smartmcpproxy.server"
_NOT_IN_NAMES: Final = r"[^A-Za-z0-9_.-]+"


class ContainerEngine(NamedTuple):
    """Program that makes containers, known to work.

    Attributes:
        program: Its path.
        options: What lets a container run as its user, with a process that reaps where the engine has one.
    """

    program: str
    options: tuple[str, ...]


class ServerContainer(NamedTuple):
    """Container of one process of a server.

    Attributes:
        command: Makes it, and stays until it ends.
        variables: Of that command, and values of those that it hands on.
        removal: Command that ends the container; it has no effect once that is gone.
    """

    command: tuple[str, ...]
    variables: Mapping[str, str]
    removal: tuple[str, ...]


async def plan_container(
    config: ServerConfig, variables: Mapping[str, str], environ: Mapping[str, str], shelter: Shelter | None
) -> ServerContainer:
    """Plan the container of a server, and make its private folder.

    Args:
        config: The server, expanded.
        variables: What its process would be started with outside.
        environ: The gateway's own, for the engine.
        shelter: Keeps private folders.

    Raises:
        UpstreamError: No engine works here, or none can do what the entry asks for.
    """
    try:
        engine = await asyncio.to_thread(find_engine, environ.get("PATH"))
    except LookupError as exc:
        raise _refuse(config, f"and no engine works here: {exc}", "Install podman, or start docker's service") from exc
    reach = await asyncio.to_thread(prepare_reach, config, variables, shelter)
    return compose(engine, config, reach, environ)


def compose(
    engine: ContainerEngine, config: ServerConfig, reach: ServerReach, environ: Mapping[str, str]
) -> ServerContainer:
    """Compose the command that makes a server's container; values that may be secret are not in it.

    Raises:
        UpstreamError: The entry asks for what no engine can do.
    """
    word = config.command.rpartition("/")[2]
    image = config.isolation.image or IMAGES.get(word)
    if image is None:
        raise _refuse(config, f"and no image is known for '{config.command}'", 'Name one: {"image": "..."}')
    passed = {
        name: text
        for name, text in reach.variables.items()
        if name in config.env or not re.fullmatch(OF_THE_HOST, name)
    }
    own = {name: text for name, text in environ.items() if re.fullmatch(STEERS_ENGINES, name)}
    for name in [name for name in passed if name in config.env and re.fullmatch(STEERS_ENGINES, name)]:
        if name not in _PLACES and passed[name] != own.get(name):
            raise _refuse(config, f"and its variable '{name}' would steer the engine", "Take it out of 'env'")
    mounts = _mount(config, reach)
    name = f"mcpproxy-{re.sub(_NOT_IN_NAMES, '_', config.name)[:40]}-{secrets.token_hex(6)}"
    is_mounted = any(Path(reach.cwd).is_relative_to(path) for path in mounts)
    command = (
        *(engine.program, "run", "--rm", "--interactive", *engine.options),
        *(f"--name={name}", f"--label={LABEL}={config.name}"),
        *("--cap-drop=ALL", "--security-opt=no-new-privileges", "--read-only", "--tmpfs=/tmp"),
        *container_limits(config),
        *(f"--stop-timeout={_STOP_S}", *(() if reach.network else ("--network=none",))),
        *(f"--mount=type=bind,source={path},target={path}{option}" for path, option in mounts.items()),
        *(f"--env={key}={passed.pop(key)}" for key in _PLACES if key in passed),
        *(f"--env={key}" for key in passed),
        *(() if is_mounted else (f"--tmpfs={reach.cwd}",)),
        *(f"--workdir={reach.cwd}", f"--entrypoint={word if word in IMAGES else config.command}"),
        *(image, *config.args),
    )
    return ServerContainer(command, own | passed, (engine.program, "rm", "--force", name))


async def remove_container(removal: Sequence[str]) -> None:
    """Run the command that ends a container, if there is one."""
    if removal:
        with contextlib.suppress(OSError, TimeoutError):
            process = await asyncio.create_subprocess_exec(*removal, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
            await asyncio.wait_for(process.wait(), _REMOVAL_S)


def _mount(config: ServerConfig, reach: ServerReach) -> dict[str, str]:
    """Options of the mounts, by path: a folder before what is in it."""
    options = dict.fromkeys(reach.read, ",readonly") | dict.fromkeys(reach.write, "")
    paths = sorted(filter(os.path.exists, options))
    if odd := next((path for path in paths if "," in path or '"' in path), ""):
        raise _refuse(config, f"and engines take no path like {odd!r}", "Rename it, or say in 'allow' what is open")
    return {path: options[path] for path in paths}


@cache
def find_engine(path: str | None) -> ContainerEngine:
    """The first engine on a `PATH` that works.

    Raises:
        LookupError: None does; it says why.
    """
    reasons = []
    for name, question in _QUESTIONS.items():
        program = shutil.which(name, path=path)
        if program is None:
            reasons.append(f"{name} is not installed")
            continue
        try:
            words = [program, "info", "--format", question]
            answer = run(words, stdin=DEVNULL, capture_output=True, text=True, timeout=_TRIAL_S, check=False)
        except (OSError, TimeoutExpired) as exc:
            reasons.append(f"{name}: {exc}")
            continue
        if answer.returncode == 0:
            return ContainerEngine(program, tuple(_choose_options(name, answer.stdout)))
        reasons.append(f"{name} says: {answer.stderr.strip()[:200]}")
    raise LookupError("; ".join(reasons))


def _choose_options(engine: str, answer: str) -> Iterator[str]:
    if engine == "podman" and os.getuid():
        yield "--userns=keep-id"
    # Root of an engine without root is the user.
    yield "--user=0:0" if "name=rootless" in answer else f"--user={os.getuid()}:{os.getgid()}"
    if engine == "docker" or any(map(os.path.exists, _PODMAN_INITS)):
        yield "--init"


def _refuse(config: ServerConfig, reason: str, remedy: str) -> UpstreamError:
    """The error for a server that is not started without its container."""
    return UpstreamError(
        f"Server '{config.name}' is to run in a container, {reason}.",
        hint=f'{remedy}, or write "isolation": "sandbox" in its entry.',
    )
