"""Prints what an image holds as CycloneDX JSON: distributions of Python, packages of Debian.

It runs inside the image and needs Python alone: docker run --rm -i --entrypoint python3 IMAGE - <scripts/sbom.py
For one image it is always the same.
"""

import json
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

OURS = "smart-mcp-proxy"


def normalize(name: str) -> str:
    """A distribution's name as package addresses have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def component(kind: str, name: str, version: str, query: str = "") -> dict[str, Any]:
    address = f"pkg:{kind}/{name}@{quote(version)}{query}"
    return {"type": "library", "bom-ref": address, "name": name, "version": version, "purl": address}


def describe_distribution(name: str, found: Distribution) -> dict[str, Any]:
    # Another program has our name at the index.
    described = component("generic" if name == OURS else "pypi", name, found.version)
    if text := found.metadata.get("License-Expression"):
        described["licenses"] = [{"expression": text}]
    elif len(text := found.metadata.get("License") or "") in range(1, 80):  # else it is the license itself
        described["licenses"] = [{"license": {"name": text}}]
    return described


def list_debian_packages(root: Path) -> Iterator[dict[str, Any]]:
    status, release = root / "var/lib/dpkg/status", root / "etc/os-release"
    if not status.exists():
        return
    system = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)', release.read_text("utf-8"), re.MULTILINE))
    for entry in status.read_text("utf-8").split("\n\n"):
        facts = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", entry, re.MULTILINE))
        if facts.get("Status", "").endswith(" installed"):
            query = f"?arch={facts['Architecture']}&distro={system['ID']}-{system.get('VERSION_ID', '')}"
            yield component(f"deb/{system['ID']}", facts["Package"], facts["Version"], query)


def build_sbom(folders: list[str], root: Path) -> dict[str, Any]:
    """The whole document; it holds no time and no serial number."""
    found = {normalize(each.metadata["Name"]): each for each in distributions(path=folders)}
    parts = {name: describe_distribution(name, found[name]) for name in sorted(found)}
    links = []
    for name, part in parts.items():
        needed = {normalize(re.split(r"[^\w.-]", line)[0]) for line in found[name].requires or ()}
        links.append(
            {"ref": part["bom-ref"], "dependsOn": [parts[each]["bom-ref"] for each in sorted(needed & parts.keys())]}
        )
    subject = parts.pop(OURS, component("generic", OURS, ""))
    others = [component("generic", "python", platform.python_version()), *list_debian_packages(root)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject | {"type": "application"}},
        "components": [*parts.values(), *sorted(others, key=lambda each: str(each["purl"]))],
        "dependencies": links,
    }


if __name__ == "__main__":
    places = [str(each) for each in Path("/opt").glob("*/lib/python3*/site-packages")]
    json.dump(build_sbom(places, Path("/")), sys.stdout, indent=1)
    print()
