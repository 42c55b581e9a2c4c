"""Commands of README and docs run as printed, in an empty home beside a gateway of a few servers."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from documents import DOCUMENTS, name_of
from shown_home import Home

from smart_mcp_proxy.cli.app import main

PROGRAMS = (
    *("mcpproxy", "smart-mcp-proxy", "python", "curl", "git", "make", "docker", "kubectl", "helm", "pip", "uv", "uvx"),
    *("export", "deploy/secrets.sh"),
)
"""First words of the lines that are commands where a block also shows what they print."""
FENCED = re.compile(r"^```(bash|sh|text|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
VARIABLES = re.compile(r"(?:[A-Z_]+=\S* +)*")
OUTSIDE = {
    r"git clone": "the repository's address; `scripts/first_ways.py` runs these two",
    r"make ": "installs or tests this checkout itself",
    r"uvx |uv tool |pip install": "the package index",
    r"docker ": "a container engine; `tests/image` builds and starts the images",
    r"kubectl |helm |deploy/secrets": "a cluster, or the engine; `tests/deploy` checks these files",
    r"MCPPROXY_DATABASE_URL=|mcpproxy data copy": "PostgreSQL; `tests/catalog` has one",
    r"mcpproxy login|mcpproxy server login": "a person in a browser; `tests/cli` signs in at a small provider",
    r"mcpproxy serve --http 2>&1 >/dev/null \| jq": "jq, and an end that only Ctrl-C brings",
    r"export MCPPROXY_REGISTRY_URL|MCPPROXY_REGISTRY_URL=": "a registry; `tests/cli/test_registry_command.py` has one",
    r"for attempt": "a minute of waiting between two looks",
    r"mcpproxy service install": "the user's service manager",
}
"""What is not run here, by the beginning of the command, and what it needs; each row holds back at least one."""
STATUS = {"mcpproxy check github:create_issue@sha256:0123456789abcdef": 13}
"""Commands that are shown because they fail."""
LEAST = 60


class Shown(NamedTuple):
    """A command of a page.

    Args:
        page: Its path in the repository.
        text: As it is printed, without the prompt.
    """

    page: str
    text: str


def commands_in(block: str, language: str) -> list[str]:
    """The commands of a block: all of it where the language is a shell's, else the lines that are commands."""
    joined = re.sub(r" *\\\n *", " ", block)
    if language in ("bash", "sh"):
        return [joined.strip()] if re.search(r"^(for|export) ", joined, re.MULTILINE) else joined.strip().splitlines()
    lines = [line.removeprefix("$ ") for line in joined.splitlines()]
    if "$ " in joined:
        lines = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
    found = [line for line in lines if VARIABLES.sub("", line, count=1).split(" ")[0] in PROGRAMS]
    return [line for line in found if "  " not in line.split("#")[0].rstrip()]


def shown_commands() -> list[Shown]:
    """Every command of README and docs that no other test runs, in their order, at the first page that has it."""
    found: dict[str, Shown] = {}
    for document in DOCUMENTS:
        for language, block in FENCED.findall(document.read_text("utf-8")):
            # A console block is run by tests/docs/test_examples.py, the table of commands by test_readme.py.
            if language != "console" and not block.startswith("mcpproxy  "):
                for text in commands_in(block, language):
                    found.setdefault(text.split("  #")[0].strip(), Shown(name_of(document), text))
    return list(found.values())


def is_last(command: str) -> bool:
    """Whether a command needs that no gateway runs."""
    return command.startswith("mcpproxy data restore")


def commands_of(page: str) -> list[str]:
    """What is run of a page."""
    return [each.text for each in RUN if each.page == page]


SHOWN = shown_commands()
RUN = [each for each in SHOWN if not any(re.match(kind, each.text) for kind in OUTSIDE)]
PAGES = sorted({each.page for each in RUN}, key=lambda page: (any(map(is_last, commands_of(page))), page))
CLIENTS = [page for page in PAGES if page.startswith("docs/clients/")]
"""Pages whose commands need no gateway."""
QUESTIONS = re.compile("mcpproxy (approve math:add|init +#)")
"""Commands that ask, on a terminal."""


class Reader(NamedTuple):
    """Somebody who reads one page after the other.

    Args:
        home: Where they type.
        gateway: Serves there until it is closed.
    """

    home: Home
    gateway: ExitStack


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """One home and one gateway for all pages; a page whose commands need that none runs comes last."""
    home = Home(tmp_path_factory.mktemp("home"))
    with ExitStack() as gateway:
        gateway.enter_context(home.serving())
        yield Reader(home, gateway)


@pytest.mark.long  # a process for each command
@pytest.mark.parametrize("page", [page for page in PAGES if page not in CLIENTS])
def test_each_command_of_a_page_succeeds(page: str, reader: Reader) -> None:
    """One after the other, as a reader types them."""
    home, gateway = reader
    for command in commands_of(page):
        if is_last(command):
            gateway.close()
        asks = QUESTIONS.match(command)
        if command == "mcpproxy approve math:add":
            home.change_math()
        status, said = home.run_and_agree(command) if asks else home.run(command)
        assert status == STATUS.get(command, 0), f"$ {command}\n{said}"


@pytest.mark.long  # a second of work
def test_each_command_of_a_clients_page_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, without a gateway: there are some eighty."""
    monkeypatch.setattr(os, "environ", Home(tmp_path).env)
    monkeypatch.chdir(tmp_path)
    for page in CLIENTS:
        for command in commands_of(page):
            monkeypatch.setattr(sys, "argv", shlex.split(command, comments=True))
            assert main() == 0, command


def test_what_is_not_run_says_why() -> None:
    """Each row of the table stands for a command, and enough is left that is run."""
    assert [kind for kind in OUTSIDE if not any(re.match(kind, each.text) for each in SHOWN)] == []
    assert len(RUN) >= LEAST
