"""Direct dependencies: a version that nobody has tried yet is not installed by itself."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OWN = "smart-mcp-proxy"
PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))["project"]
WRITTEN = sorted(
    {*PROJECT["dependencies"], *(each for extra in PROJECT["optional-dependencies"].values() for each in extra)}
)
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
