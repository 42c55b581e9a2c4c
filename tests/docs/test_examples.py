"""Examples of the documentation are run: what a page shows on a terminal is what the commands print."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from documents import DOCUMENTS, ROOT, blocks, name_of

from smart_mcp_proxy.demo import demo_servers

PAGES = [each for each in DOCUMENTS if blocks(each, "console")]
LIMIT_S = 60


def matches(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; a line `...` stands for any lines."""
    pattern = "".join("(?:.*\n)*?" if line == "..." else f"{re.escape(line)}\n" for line in shown.splitlines())
    return re.fullmatch(pattern, printed) is not None


def examples(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with the output below it."""
    parts = re.split(r"^\$ (.+)\n", block, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.long  # a process for each example
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_example_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    """One after the other, beside the bundled servers, in the home of somebody who has nothing else."""
    (tmp_path / "mcp_config.json").write_text(json.dumps({"mcpServers": demo_servers()}))
    (tmp_path / "home").mkdir()
    settings = {"MCPPROXY_DATA_DIR": str(tmp_path / "data"), "HOME": str(tmp_path / "home")}
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), **settings}
    for block in blocks(page, "console"):
        for command, shown in examples(block):
            words = shlex.split(command)
            variables = dict(word.split("=", 1) for word in words[: words.index("mcpproxy")])
            done = subprocess.run(
                [sys.executable, "-m", "smart_mcp_proxy", *words[words.index("mcpproxy") + 1 :]],
                cwd=tmp_path,
                env={**env, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            assert matches(shown, done.stdout), f"$ {command}\n{done.stdout}"


def test_an_example_that_differs_is_seen() -> None:
    """The measure itself."""
    assert matches("one\n...\nfour\n", "one\ntwo\nthree\nfour\n")
    assert not matches("one\nfour\n", "one\ntwo\nthree\nfour\n")
    assert not matches("one\n...\nfive\n", "one\ntwo\nfour\n")
    assert examples("$ a b\n1\n2\n$ c\n3\n") == [("a b", "1\n2\n"), ("c", "3\n")]
