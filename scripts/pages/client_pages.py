"""A page for each client: its files, the entry that `mcpproxy connect` writes, and what was tried."""

import json
import tomllib
from pathlib import Path

from pages.observations import COLUMNS
from smart_mcp_proxy.client_files import KNOWN_CLIENTS, OUR_NAME, Door, KnownClient, our_entry
from smart_mcp_proxy.client_files.clients import LIST
from smart_mcp_proxy.client_files.texts import edit
from smart_mcp_proxy.errors import ProxyError

ROOT = Path(__file__).parents[2]
WORDS = ROOT / "docs" / "words" / "clients.toml"
TRIED = ROOT / "tests" / "clients" / "tried.toml"
RUNS = ROOT / "tests" / "clients" / "runs.json"
OBSERVED = ROOT / "tests" / "clients" / "observed.json"
PROGRAM = ("/path/to/.venv/bin/mcpproxy",)
URL = "http://127.0.0.1:8000/mcp"
HEADINGS = ("client", "version", "era", "HTTP", "stdio", "tried", "remarks")
UNTRIED = "not tried"
LANGUAGES = {"json": "text", "toml": "toml", "yaml": "yaml"}
"""Words behind the fence; `json` is for server files of ours, which a test loads."""
NOTE = "<!-- Written by scripts/regenerate_docs.py from smart_mcp_proxy/client_files/clients.py and docs/words. -->"


def tried_table() -> str:
    """One row per client: the outcome of its last run, or that there was none."""
    runs = json.loads(RUNS.read_text(encoding="utf-8"))
    rows = [HEADINGS, ["---"] * len(HEADINGS)]
    for client in tomllib.loads(TRIED.read_text(encoding="utf-8"))["client"]:
        run = runs[client["run"]] if client["run"] else {}
        seen = [run.get("version", ""), run.get("era", ""), run.get("http", UNTRIED), run.get("stdio", UNTRIED)]
        rows.append([client["name"], *seen, run.get("tried", ""), client["remark"]])
    return _table(rows)


def connect_table(folder: str) -> str:
    """One row per client that `mcpproxy connect` knows, with its page in `folder`."""
    words = _words()
    rows = [("client", "name", "its file", "tried"), ("---",) * 4]
    for client in KNOWN_CLIENTS:
        page = f"[{client.title}]({folder}{client.name}.md)"
        tried = _outcome(client) or words[client.name].get("short", UNTRIED)
        rows.append((page, f"`{client.name}`", f"`{_usual(client)}`", tried))
    return _table(rows)


def short_table(folder: str) -> str:
    """One row per client that was tried, and the others in a line."""
    words = _words()
    rows = [("client", "name", "tried"), ("---",) * 3]
    others = []
    for client in KNOWN_CLIENTS:
        page = f"[{client.title}]({folder}{client.name}.md)"
        tried = _outcome(client) or words[client.name].get("short", UNTRIED)
        if tried.endswith(UNTRIED):
            others.append(f"{page} (`{client.name}`)")
        else:
            rows.append((page, f"`{client.name}`", tried))
    return f"{_table(rows)}\n\nBy their documentation, not tried: {', '.join(others)}."


def observed_table() -> str:
    """One row per client that a run has shown, with the few facts that decide most."""
    observed = json.loads(OBSERVED.read_text(encoding="utf-8"))
    keys = ("protocol", "pages", "list_changed", "timeout", "variables", "restart_stdio", "restart_http")
    rows = [("client", *(COLUMNS[key] for key in keys)), ("---",) * (len(keys) + 1)]
    for client in KNOWN_CLIENTS:
        if row := observed.get(client.name):
            rows.append((f"[{client.title}]({client.name}.md) {row['version']}", *(row[key] for key in keys)))
    return _table(rows)


def _behaviour(client: KnownClient) -> list[str]:
    """What a run has shown of the client; nothing where there was none."""
    row = json.loads(OBSERVED.read_text(encoding="utf-8")).get(client.name)
    if row is None:
        return []
    said = f"Version {row['version']}, seen on {row['seen']} by `python scripts/observe_clients.py`:"
    rows = [("what", "as seen"), ("---", "---"), *((title, row[key]) for key, title in COLUMNS.items())]
    return ["## What it does", f"{said}\n\n{_table(rows)}"]


def _outcome(client: KnownClient) -> str:
    """The outcome of the client's last run in a few words; empty where no test drives it."""
    runs = json.loads(RUNS.read_text(encoding="utf-8"))
    tried = tomllib.loads(TRIED.read_text(encoding="utf-8"))["client"]
    run = next((runs[each["run"]] for each in tried if each["name"] == client.title and each["run"]), None)
    if run is None:
        return ""
    ways = [f"{transport} {run[transport]}" for transport in ("stdio", "http")]
    return f"{run['version']}: {', '.join(ways)}".replace("http ", "HTTP ")


def _words() -> dict[str, dict[str, str]]:
    return tomllib.loads(WORDS.read_text(encoding="utf-8"))


def client_pages() -> dict[str, str]:
    """The text of every page by its path below `docs`."""
    words = _words()
    known = {client.name for client in KNOWN_CLIENTS}
    if strange := words.keys() ^ known:
        raise SystemExit(f"docs/words/clients.toml and the table of clients differ: {', '.join(sorted(strange))}")
    return {f"clients/{client.name}.md": _page(client, words[client.name]) for client in KNOWN_CLIENTS}


def _page(client: KnownClient, words: dict[str, str]) -> str:
    parts = [
        f"# {client.title}",
        NOTE,
        _commands(client),
        "## Its files",
        _files(client),
        "## The entry",
        _entries(client),
        "## What was tried",
        words["tried"],
        *_behaviour(client),
    ]
    if notes := words.get("notes"):
        parts += ["## Good to know", notes.strip()]
    parts.append("[All clients](index.md) · [Your servers](../servers.md) · [Errors](../errors/index.md)")
    return "\n\n".join(parts) + "\n"


def _commands(client: KnownClient) -> str:
    lines = [
        "```text",
        f"mcpproxy connect {client.name}             # the difference; nothing is written",
        f"mcpproxy connect {client.name} --write     # do it",
        f"mcpproxy disconnect {client.name}          # undo it",
        "```",
        "",
        f"{client.restart} to use it. On a terminal `connect --write` then waits for the first call and shows it.",
    ]
    return "\n".join(lines)


def _files(client: KnownClient) -> str:
    rows = [("where", "file"), ("---", "---")]
    rows += [(system, _paths(paths)) for system, paths in _systems(client)]
    if client.project:
        rows.append(("a project", f"`{client.project}`, with `--project`"))
    section = " → ".join(f"`{key}`" for key in client.section if key != LIST)
    form = ", in a list" if client.section[-1] == LIST else ""
    said = f"The file is {client.text_format.upper()}; its servers stand under {section}{form}."
    return f"{_table(rows)}\n\n{said} Comments, order and other entries stay as they are."


def _systems(client: KnownClient) -> list[tuple[str, tuple[str, ...]]]:
    if not client.mac:
        return [("Linux, macOS", client.linux)]
    return [("Linux", client.linux), ("macOS", client.mac)]


def _paths(paths: tuple[str, ...]) -> str:
    return ", else ".join(f"`{path}`" for path in paths)


def _usual(client: KnownClient) -> str:
    return next(path for path in client.linux if path.startswith("~"))


def _entries(client: KnownClient) -> str:
    """The client's new file as `connect` writes it, for each way to reach the gateway."""
    parts = ["Over stdio the client starts the gateway:", _written(client, Door(PROGRAM))]
    if client.url_key:
        parts.append("Over HTTP it uses one that runs (`--http`, or `--url ADDRESS`):")
    else:
        parts.append("It only starts programs. A gateway that runs is reached through `mcpproxy attach` (`--http`):")
    parts.append(_written(client, Door(PROGRAM, url=URL)))
    parts.append(_token_words(client))
    return "\n\n".join(parts)


def _token_words(client: KnownClient) -> str:
    try:
        our_entry(client, Door(PROGRAM, url=URL, has_token=True))
    except ProxyError:
        return "It cannot refer to a token. Where the gateway asks for one, let the client start it over stdio."
    return (
        "Where the gateway asks for a token, the entry names the variable `MCPPROXY_AUTH_TOKEN`; the token itself is "
        "never written down. Set that variable where the client starts."
    )


def _written(client: KnownClient, door: Door) -> str:
    text = edit("", client.text_format, client.section, {OUR_NAME: our_entry(client, door)}, "the file")
    return f"```{LANGUAGES[client.text_format]}\n{text.strip()}\n```"


def _table(rows: list[tuple[str, ...]] | list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
