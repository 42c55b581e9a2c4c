"""Direct dependencies: a version that nobody has tried yet is not installed by itself."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from syntax_trees import PACKAGE, list_nodes, package_trees

from smart_mcp_proxy import __version__
from smart_mcp_proxy.cli.commands.machine.other_programs import NAMES

OWN = "smart-mcp-proxy"
PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
WRITTEN = sorted(
    {*PROJECT["dependencies"], *(each for extra in PROJECT["optional-dependencies"].values() for each in extra)}
)
# Distributions of their own that belong to one of the dependencies.
PARTS = {"fastmcp-slim", "mcp-types", "pydantic-core", "pydantic-monty-client", "transformers"}
EXTRAS = "psycopg faiss onnxruntime tokenizers sentence_transformers torch transformers rank_bm25 openai pydantic_monty"
EXTRAS += " prometheus_client opentelemetry.sdk opentelemetry.exporter"
ENTRANCES = "smart_mcp_proxy.gateway smart_mcp_proxy.web.serve smart_mcp_proxy.web.serve_http smart_mcp_proxy.client"
ENTRANCES += " smart_mcp_proxy.cli.commands.operate.serving smart_mcp_proxy.cli.commands.operate.doctor_checks"
REQUIREMENTS = [found for found in map(Requirement, WRITTEN) if found.name != OWN]


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda found: found.name)
def test_each_dependency_has_a_lower_and_an_upper_bound(requirement: Requirement) -> None:
    """Its next major version may break what runs."""
    assert {">=", "<"} <= {bound.operator for bound in requirement.specifier}


def test_what_is_tested_with_is_within_the_bounds() -> None:
    """As far as it is installed here."""
    installed = {canonicalize_name(found.name): found.version for found in importlib.metadata.distributions()}
    versions = {each: installed[name] for each in REQUIREMENTS if (name := canonicalize_name(each.name)) in installed}
    assert len(versions) >= len(PROJECT["dependencies"])
    assert [found for found, version in versions.items() if not found.specifier.contains(version)] == []


def _imported() -> Iterator[str]:
    """Names of the top-level packages that the source imports, at the top of a module or on use."""
    for tree in package_trees().values():
        for node in list_nodes(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield (node.module or "").partition(".")[0]


@pytest.mark.long  # a third of a second of processor time
def test_what_is_imported_is_a_dependency_of_its_own() -> None:
    """Another package that brings it may stop doing so, as fastmcp did with keyring in a patch release."""
    owners = importlib.metadata.packages_distributions()
    names = {canonicalize_name(found.name) for found in REQUIREMENTS} | PARTS | {OWN}
    foreign = set(_imported()) - sys.stdlib_module_names
    assert foreign
    missing = {name for name in foreign if not ({canonicalize_name(each) for each in owners.get(name, [name])} & names)}
    assert missing == set()


@pytest.mark.parametrize(
    "file", [PACKAGE, PACKAGE.parent / "README.md", PACKAGE.parent / "docs"], ids=lambda it: it.name
)
def test_no_words_of_ours_install_from_the_index_by_our_name(file: Path) -> None:
    """Another program has that name there: `pip install smart-mcp-proxy[code]` would fetch it."""
    files = [file] if file.is_file() else [*file.rglob("*.py"), *file.rglob("*.md")]
    pattern = re.compile(
        r"(pip|pipx|uv tool) install (-\S+ )*['\"]?smart-mcp-proxy|uvx smart-mcp-proxy|smart-mcp-proxy\["
    )
    assert [(each.name, found[0]) for each in files if (found := pattern.search(each.read_text("utf-8")))] == []


def test_the_version_is_above_every_one_of_the_other_program_and_both_names_start_us() -> None:
    """An upgrade by name must not replace ours by the other, and `uvx --from .` needs that script."""
    assert int(__version__.partition(".")[0]) >= 1
    assert set(PROJECT["scripts"].values()) == {"smart_mcp_proxy.cli:main"}
    assert set(PROJECT["scripts"]) == set(NAMES)


@pytest.mark.long  # imports the gateway in a process of its own
def test_whoever_has_no_extra_can_start_the_gateway() -> None:
    """What an extra brings is imported where it is used, and nowhere on the way there."""
    code = f"""
import importlib, sys
sys.modules.update(dict.fromkeys({EXTRAS.split()!r}))
for name in {ENTRANCES.split()!r}:
    importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
