"""Servers of `extended_upstream.py`, and the state of each, which a test may change while it runs."""

import asyncio
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import anyio

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.models import ToolKey

UPSTREAM = Path(__file__).parent / "extended_upstream.py"
LIMIT_S = 60
APPS = "io.modelcontextprotocol/ui"
SKILLS = "io.modelcontextprotocol/skills"
TASKS = "io.modelcontextprotocol/tasks"
PAGE = "text/html;profile=mcp-app"
SHOWS_APPS = {APPS: {"mimeTypes": [PAGE]}}


class Extended:
    """One server: its entry, its state and what it was asked.

    Args:
        directory: Holds its files.
        name: Of the server.
        mode: Its era.
        state: What it knows at first.
    """

    def __init__(self, directory: Path, name: str, mode: str = "modern", **state: Any) -> None:
        self.name = name
        self.mode = mode
        self.file = directory / f"{name}.json"
        self.ledger = directory / f"{name}.ledger"
        self.ledger.touch()
        self.state: dict[str, Any] = state
        self.store()

    @property
    def entry(self) -> dict[str, Any]:
        """The configuration of the server on stdio."""
        arguments = ["-S", str(UPSTREAM), self.mode, str(self.file), str(self.ledger)]
        return {"command": sys.executable, "args": arguments}

    def store(self, **changes: Any) -> None:
        """Have it know this from now on."""
        self.state |= changes
        self.file.write_text(json.dumps(self.state), "utf-8")

    def asked(self, method: str) -> list[list[Any]]:
        """Params and declared capabilities of each request of this method."""
        lines = map(json.loads, self.ledger.read_text("utf-8").splitlines())
        return [[params, declared] for asked, params, declared in lines if asked == method]


def file_of(uri: str, text: str | bytes) -> dict[str, Any]:
    """A file of a skill as an entry lists it."""
    data = text.encode() if isinstance(text, str) else text
    return {"uri": uri, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


def skill(root: str, files: dict[str, str], **frontmatter: Any) -> dict[str, Any]:
    """The entry of a skill with these files, by path; its main file is written by `main_file`."""
    name = root.rpartition("/")[2]
    about = {"name": name, "description": f"How to do {name}", **frontmatter}
    listed = [file_of(f"{root}/{path}", text) for path, text in files.items()]
    return {"uri": f"{root}/SKILL.md", "frontmatter": about, "resources": listed}


def main_file(name: str) -> str:
    """The text of a skill's main file."""
    return f"---\nname: {name}\ndescription: How to do {name}\n---\n# {name}\nSee [it](references/GUIDE.md). ✓\n"


async def withheld(gateway: Gateway, server: str, kind: str, uri: str) -> None:
    """Returns when an item waits for the user."""
    with anyio.fail_after(LIMIT_S):
        while ToolKey(f"{server}:{kind}", uri) not in gateway.catalog.snapshot.withheld:
            await asyncio.sleep(0.01)


async def approve(gateway: Gateway, server: str, kind: str, uri: str) -> None:
    """Approves an item as it is now."""
    waiting = gateway.catalog.snapshot.withheld[ToolKey(f"{server}:{kind}", uri)]
    await gateway.admin.approvals.approve({f"{server}:{kind}:{uri}": waiting.record.change_hash}, "tester")


def code_of(answer: dict[str, Any]) -> Any:
    """The gateway's code of an error, else the protocol's."""
    error = answer["error"]
    data = error.get("data")
    return data["code"] if isinstance(data, dict) and "code" in data else error["code"]
