"""Write the generated parts of README.md and docs/ from the code: python scripts/regenerate_docs.py [--check].

Regions between a pair of markers are replaced; pages of clients and errors, and the manual page, are written whole.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from pages.client_pages import client_pages, connect_table, observed_table, short_table, tried_table
from pages.error_codes import tree
from pages.error_pages import error_index, error_pages
from pages.man_page import man_page

from smart_mcp_proxy.gateway.admin.roles import OPERATIONS
from smart_mcp_proxy.settings import all_settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def settings_table() -> str:
    """One row per MCPPROXY_ variable."""
    rows = ["| variable | default | values | what it does |", "|---|---|---|---|"]
    for setting in all_settings():
        default = f"`{setting.default}`" if setting.default else ""
        rows.append(f"| `{setting.variable}` | {default} | {setting.allowed} | {setting.help} |")
    return "\n".join(rows)


def roles_table() -> str:
    """One row per operation of the table of roles."""
    rows = ["| what | least role | page | REST | command | MCP |", "|---|---|---|---|---|---|"]
    for row in OPERATIONS:
        named = (row.page, row.rest, row.commands, row.mcp)
        cells = (", ".join(f"`{each.replace(':path}', '}')}`" for each in column) for column in named)
        rows.append(f"| {row.what} | {row.least or ('any token' if row.is_own else 'none')} | {' | '.join(cells)} |")
    return "\n".join(rows)


def error_table() -> str:
    """The tree at the head of errors.py."""
    return f"```text\n{tree()}\n```"


REGIONS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"clients": lambda: short_table("docs/clients/")},
    "docs/clients/index.md": {"clients": lambda: connect_table(""), "observed": observed_table, "tried": tried_table},
    "docs/roles.md": {"roles": roles_table},
    "docs/settings.md": {"settings": settings_table},
    "docs/errors/index.md": {"codes": error_index, "errors": error_table},
}
"""Generated regions by file, each between `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""


def regenerated(name: str, text: str) -> str:
    """A file's text with the part between each pair of its markers written anew."""
    for marker, made in REGIONS[name].items():
        region = made()
        marked = re.compile(rf"(<!-- {marker}:begin -->\n).*?(\n<!-- {marker}:end -->)", re.DOTALL)
        text, count = marked.subn(lambda match, region=region: match[1] + region + match[2], text)
        if count != 1:
            raise SystemExit(f"{name} needs exactly one pair of markers '{marker}:begin' and '{marker}:end'")
    return text


def generated() -> dict[Path, str]:
    """Every generated file, whole or in regions, with the text that it should have."""
    files = {ROOT / name: regenerated(name, (ROOT / name).read_text(encoding="utf-8")) for name in REGIONS}
    files[ROOT / "smart_mcp_proxy" / "cli" / "mcpproxy.1"] = man_page()
    return files | {DOCS / name: text for name, text in (client_pages() | error_pages()).items()}


def strangers(files: dict[Path, str]) -> list[Path]:
    """Pages beside the generated ones that nothing generates any more."""
    return [page for room in ("clients", "errors") for page in sorted((DOCS / room).glob("*.md")) if page not in files]


def main() -> int:
    files = generated()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    stale += (gone := strangers(files))
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run scripts/regenerate_docs.py")
        return int(bool(stale))
    for path in gone:
        path.unlink()
    for path in stale:
        if path in files:
            path.write_text(files[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
