"""Writes the generated tables of README.md from the code: python scripts/regenerate_docs.py [--check]."""

import json
import re
import sys
import tomllib
from pathlib import Path

from smart_mcp_proxy import errors
from smart_mcp_proxy.settings import all_settings

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
CLIENTS = ROOT / "tests" / "clients" / "tried.toml"
RUNS = ROOT / "tests" / "clients" / "runs.json"
CLIENT_HEADINGS = ("client", "version", "era", "HTTP", "stdio", "tried", "remarks")
UNTRIED = "not tried"


def settings_table() -> str:
    """One row per MCPPROXY_ variable."""
    rows = ["| variable | default | values | what it does |", "|---|---|---|---|"]
    for setting in all_settings():
        default = f"`{setting.default}`" if setting.default else ""
        rows.append(f"| `{setting.variable}` | {default} | {setting.allowed} | {setting.help} |")
    return "\n".join(rows)


def error_table() -> str:
    """The tree at the head of errors.py."""
    tree = (errors.__doc__ or "").split("\n\n", 1)[1].rstrip()
    return f"```text\n{tree}\n```"


def client_table() -> str:
    """One row per client: what was seen in its last run, or that there was none."""
    runs = json.loads(RUNS.read_text(encoding="utf-8"))
    rows = [CLIENT_HEADINGS, ["---"] * len(CLIENT_HEADINGS)]
    for client in tomllib.loads(CLIENTS.read_text(encoding="utf-8"))["client"]:
        run = runs[client["run"]] if client["run"] else {}
        seen = [run.get("version", ""), run.get("era", ""), run.get("http", UNTRIED), run.get("stdio", UNTRIED)]
        rows.append([client["name"], *seen, run.get("tried", ""), client["remark"]])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def regenerated(text: str) -> str:
    """`text` with the part between each pair of markers written anew."""
    tables = {"clients": client_table(), "settings": settings_table(), "errors": error_table()}
    for name, table in tables.items():
        marked = re.compile(rf"(<!-- {name}:begin -->\n).*?(\n<!-- {name}:end -->)", re.DOTALL)
        text, count = marked.subn(lambda match, table=table: match[1] + table + match[2], text)
        if count != 1:
            raise SystemExit(f"README.md needs exactly one pair of markers '{name}:begin' and '{name}:end'")
    return text


def main() -> int:
    old = README.read_text(encoding="utf-8")
    new = regenerated(old)
    if "--check" in sys.argv:
        print("README.md is up to date" if new == old else "README.md is out of date: run scripts/regenerate_docs.py")
        return int(new != old)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
