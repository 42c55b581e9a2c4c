"""`mcpproxy server isolate|allow`: how servers are held, and what of their user's they reach."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from cyclopts import Parameter

from smart_mcp_proxy.cli.commands.servers.server_change import patch_entry, read_server, report_change, server_path
from smart_mcp_proxy.cli.support.access import open_at_rest
from smart_mcp_proxy.cli.support.api import read_servers
from smart_mcp_proxy.cli.support.failure import UsageError, add_next_step, require_agreed
from smart_mcp_proxy.cli.support.output import indent_lines, say, show, show_json, warn
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.models import ServerState
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import IsolationMode, explain_isolation, explain_reach, list_guarded_places, require_named
from smart_mcp_proxy.servers.isolation import NETWORK_HINT, NetworkHost
from smart_mcp_proxy.servers.load import is_guarded

if TYPE_CHECKING:
    from smart_mcp_proxy.settings import Settings

ISOLATE_EXAMPLES: Final = """\
mcpproxy server isolate --all --dry-run
  mcpproxy server isolate notes git --yes
  mcpproxy server isolate notes --none"""
ALLOW_EXAMPLES: Final = """\
mcpproxy server allow notes --write ~/notes
  mcpproxy server allow git --read ~/.ssh --network on"""
_LINES: Final = 200
_Paths = Annotated[list[str] | None, Parameter(negative=())]


@dataclass(frozen=True, slots=True)
class IsolationKind:
    """Isolation to ask for: a sandbox, if nothing is said.

    Attributes:
        none: With your rights.
        sandbox: In a sandbox, or not at all.
        container: In a container.
    """

    none: bool = False
    sandbox: bool = False
    container: bool = False


_NOT_SAID: Final = IsolationKind()


async def isolate_servers(
    *names: str,
    every: Annotated[bool, Parameter(name="--all")] = False,
    kind: Annotated[IsolationKind, Parameter(name="*")] = _NOT_SAID,
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
) -> None:
    """Write into servers' entries how their processes are held: in a sandbox, if nothing else is said.

    Args:
        names: Server names.
        every: All that run with your rights and whose entries do not say so.
        kind: Another way.
        dry_run: Start each once in that way, show what it is refused, and change nothing.
        yes: Do not ask first.
        json: Print {"isolation", "dry_run", "servers"}.
    """
    if bool(names) == every:
        raise UsageError("Name servers, or say --all.")
    mode, settings = _choose_mode(kind), open_settings()
    pages = await _read_pages(settings, names)
    # Here and not above: --help has to be quick.
    from smart_mcp_proxy.upstream import find_way

    if mode == "sandbox" and find_way() is None:
        hint = "Install bubblewrap; the kernel has no Landlock, or it is switched off."
        raise RequestError("This system has no sandbox, so a server that asks for one would not start.", hint=hint)
    if not pages:
        say("No server runs with your rights unless its entry says so.")
    if dry_run:
        done = [await _try_once(settings, page, mode, as_json=json) for page in pages]
    else:
        if pages and not yes:
            listed = " ".join(shell_word(page["name"]) for page in pages)
            held = "with your rights" if mode == "none" else f"in a {mode}"
            look = f"mcpproxy server isolate {listed} --{mode} --dry-run"
            require_agreed(f"Run {listed} {held} from now on?", "changes entries", look)
        done = [await _isolate(page, mode, as_json=json) for page in pages]
    if json:
        show_json({"isolation": mode, "dry_run": dry_run, "servers": done})


def _choose_mode(kind: IsolationKind) -> IsolationMode:
    said: list[IsolationMode] = [mode for mode in get_args(IsolationMode) if getattr(kind, mode)]
    if len(said) > 1:
        raise UsageError(f"{' and '.join(f'--{mode}' for mode in said)} are both given.", hint="Use one of them.")
    return said[0] if said else "sandbox"


async def _read_pages(settings: "Settings", names: Sequence[str]) -> list[dict[str, Any]]:
    """The servers of these names; without any those that run unconfined and do not say so."""
    async with open_at_rest(settings) as api:
        servers = (await api.status())["servers"]
        unconfined = [server["name"] for server in servers if server.get("isolation") == "none"]
        pages = [await api.manage("GET", server_path(name)) for name in dict.fromkeys(names or unconfined)]
    for page in pages:
        _require_process(page)
    return pages if names else [page for page in pages if not _says_isolation(page["config"])]


def _require_process(page: Mapping[str, Any]) -> None:
    """Require a server whose process can be confined; a gateway of an earlier version knows of none."""
    if page.get("reach") is None:
        held = f"It is held in a {page['isolation']} by its own command." if page.get("isolation") else ""
        message = f"Server '{page['name']}' has no process here that could be confined. {held}".rstrip()
        raise add_next_step(UsageError(message), "mcpproxy server list")


def _says_isolation(entry: Mapping[str, Any]) -> bool:
    asked = entry.get("isolation")
    return asked.get("enabled") is not False if isinstance(asked, Mapping) else bool(asked)


async def _isolate(page: Mapping[str, Any], mode: IsolationMode, *, as_json: bool) -> dict[str, Any]:
    is_object = isinstance(page["config"].get("isolation"), Mapping)
    done = await patch_entry(page["name"], {"isolation": {"enabled": None, "mode": mode} if is_object else mode})
    if not as_json:
        report_change(done, as_json=False)
        say(explain_isolation(mode, page["reach"]))
    return done


async def _try_once(
    settings: "Settings", page: Mapping[str, Any], mode: IsolationMode, *, as_json: bool
) -> dict[str, Any]:
    """Start a server once as it would be held, with a private folder that goes afterwards."""
    # Here and not above: --help has to be quick.
    from smart_mcp_proxy.cli.support.one_start import read_start_log
    from smart_mcp_proxy.upstream import Shelter, find_refusals, suggest_allowance

    name, servers = page["name"], await read_servers(settings)
    require_named(name, servers)
    config, guarded = servers[name], list_guarded_places(settings, Path.cwd())
    with TemporaryDirectory(prefix="mcpproxy-") as folder:
        shelter = Shelter(Path(folder), guarded)
        lines, status = await read_start_log(settings, config, mode, _LINES, shelter)
    found = [
        {"line": each.line, "path": each.path, "allow": suggest_allowance(name, each, guarded)}
        for each in find_refusals(lines) or find_refusals(status.error.splitlines())
    ]
    starts = status.state is ServerState.READY
    if not as_json:
        say(f"{name}: {explain_isolation(mode, page['reach'])}")
        show(
            f"{name} {'starts' if starts else 'does not start'} ({status.state}). {indent_lines(status.error)}".rstrip()
        )
        for each in found:
            show(f"  refused: {each['line']}\n    {each['allow']}".rstrip())
    return {"name": name, "starts": starts, "state": status.state.value, "error": status.error, "refused": found}


async def allow_server(
    name: str, /, *, read: _Paths = None, write: _Paths = None, network: _Paths = None, json: bool = False
) -> None:
    """Let a server that is confined reach more of yours, from its next start on.

    Where its entry says nothing yet, the paths that it names today are written down first, so that they stay open.

    Args:
        name: Server name.
        read: A file, or a folder with all in it, that it may read; may be repeated.
        write: The same that it may change as well.
        network: on, off, or a host that it may open network connections to, such as api.github.com, *.example.com or
            127.0.0.1:5432; may be repeated.
        json: Print what was done as one object, with what is allowed now as "allow".
    """
    if not (read or write or network):
        raise UsageError("Say what to allow: --read PATH, --write PATH or --network HOST.")
    guarded = list_guarded_places(open_settings(), Path.cwd())
    page = await read_server(name)
    _require_process(page)
    reach, outer = page["reach"], page["config"].get("isolation")
    allow = {
        "read": [
            *dict.fromkeys(
                [*reach["read"], *reach.get("projects", ())[1:], *(_check_path(path, guarded) for path in read or ())]
            )
        ],
        "write": [*dict.fromkeys([*reach["write"], *(_check_path(path, guarded) for path in write or ())])],
        "network": _choose_network(reach["network"], network or ()),
    }
    inner = outer if isinstance(outer, Mapping) else {}
    patch: dict[str, Any] = {"isolation": {"allow": allow}} if inner.get("allow") is not None else {"allow": allow}
    if network and "network_mode" in inner:
        patch.setdefault("isolation", {})["network_mode"] = None  # it would say another thing
    done = await patch_entry(name, patch, page["revision"] or None)
    if json:
        show_json(done | {"allow": allow})
        return
    report_change(done, as_json=False)
    say(explain_reach({**reach, **allow}))
    if page["isolation"] == "none":
        warn(f"It runs unconfined, which none of that changes. Confine it: mcpproxy server isolate {shell_word(name)}")


def _choose_network(now: Any, said: Sequence[str]) -> Any:
    """Choose the value of `allow.network` from now on; hosts come to those of before.

    Raises:
        UsageError: Something is no host.
    """
    listed = [] if isinstance(now, bool) else [*now]
    if not said:
        return listed or now
    if {"on", "off"}.isdisjoint(said):
        for host in said:
            try:
                NetworkHost.read(host)
            except ValueError:
                raise UsageError(f"{host!r:.80} is no host to allow.", hint=NETWORK_HINT) from None
        return [*dict.fromkeys([*listed, *said])]
    if len(said) > 1:
        raise UsageError(f"--network is said {len(said)} times.", hint="Say on, off or hosts.")
    return said[0] == "on"


def _check_path(written: str, guarded: Iterable[Path]) -> str:
    """A path as it is written into an entry, with the working directory of the person who types it.

    Raises:
        UsageError: It is none, or no server may reach it.
    """
    if written.startswith("$"):
        return written
    if not written.strip() or (written.startswith("~") and written != "~" and not written.startswith("~/")):
        hint = "Write a path of your own home with ~/, any other one whole."
        raise UsageError(f"{written!r:.80} is no path to allow.", hint=hint)
    path = Path(written).expanduser().absolute()
    if is_guarded(path, guarded):
        hint = "The data directory and the server file decide about servers. Allow something else."
        raise UsageError(f"{written} can be allowed to no server.", hint=hint)
    if not path.exists():
        warn(f"{written} is not there: it is allowed once it is, from the server's next start on.")
    return written if written.startswith("~") else str(path)
