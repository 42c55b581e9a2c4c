"""What the images are built of: pins that fit the project's bounds, and a list of what came in."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(ROOT / "scripts"))

import pin_image
import sbom

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
PIN = re.compile(r"[a-z0-9.-]+==[0-9][a-z0-9.]*(?: ; python_full_version [<>]=? \"[0-9.]+\")?")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}")
TARGETS = list(pin_image.list_targets())


def read_pins(name: str) -> list[Requirement]:
    """What a file pins."""
    lines = (pin_image.FOLDER / f"{name}.txt").read_text("utf-8").splitlines()
    return [Requirement(line.removesuffix(" \\")) for line in lines if PIN.match(line)]


@pytest.mark.parametrize("name", pin_image.list_wanted())
def test_pins_are_versions_and_hashes_and_nothing_else(name: str) -> None:
    """No address, no option, no range: where a file comes from is the builder's affair."""
    text = (pin_image.FOLDER / f"{name}.txt").read_text("utf-8").removeprefix(pin_image.HEAD)
    for entry in re.split(r"(?<!\\)\n", text.removesuffix("\n")):
        pin, *hashes = entry.split(" \\\n")
        assert PIN.fullmatch(pin), pin
        assert hashes and all(map(HASH.fullmatch, hashes)), entry


@pytest.mark.parametrize("name", pin_image.list_wanted())
def test_pins_fit_the_bounds_of_the_project_for_each_python(name: str) -> None:
    """One version each: after a change of pyproject.toml run scripts/pin_image.py."""
    for values, _ in TARGETS:
        pinned = {
            canonicalize_name(pin.name): next(iter(pin.specifier)).version
            for pin in read_pins(name)
            if pin.marker is None or pin.marker.evaluate(values)
        }
        wanted = map(Requirement, pin_image.list_wanted()[name])
        found = {str(each): (each.specifier, pinned.get(canonicalize_name(each.name))) for each in wanted}
        assert [
            each for each, (bounds, version) in found.items() if version is None or not bounds.contains(version)
        ] == []


def test_the_image_installs_pinned_files_alone() -> None:
    """Or files that are there already."""
    installs = re.findall(r"bin/pip (?:install|wheel) ([^&\n]+)", DOCKERFILE)
    assert len(installs) == 5
    for words in installs:
        assert ("--require-hashes --only-binary :all: -r /pins/" in words) != ("--no-index" in words), words


@pytest.mark.parametrize(
    ("file", "fits"),
    [
        ("x-1-py3-none-any.whl", True),
        ("x-1-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("x-1-cp311-abi3-manylinux_2_28_x86_64.whl", True),
        ("x-1-cp313-cp313-manylinux_2_28_aarch64.whl", False),
        ("x-1-cp313-cp313t-manylinux_2_17_x86_64.whl", False),
        ("x-1-cp313-cp313-musllinux_1_2_x86_64.whl", False),
        ("x-1-cp313-cp313-manylinux_2_39_x86_64.whl", False),
        ("x-1-cp314-abi3-manylinux_2_28_x86_64.whl", False),
    ],
)
def test_a_wheel_is_taken_where_pip_would_take_it(file: str, fits: bool) -> None:
    """By Python 3.13 on amd64, under the C library of any base of today; the best one where several fit."""
    (tags,) = (
        tags for values, tags in TARGETS if (values["python_version"], values["platform_machine"]) == ("3.13", "x86_64")
    )
    assert pin_image.choose_wheel({file: "hash"}, tags) == ("hash" if fits else None)
    best = "x-1-cp313-cp313-manylinux_2_34_x86_64.whl"
    assert pin_image.choose_wheel({file: "hash", best: "best"}, tags) == "best"


def test_what_an_image_holds_is_told_with_versions_licenses_and_links(tmp_path: Path) -> None:
    """Of Python and of Debian; our own name belongs to another program at the index."""
    for name, lines in {
        "smart-mcp-proxy": "Version: 1.1\nLicense-Expression: MIT\nRequires-Dist: Some.Thing[x]>=1; extra == 'a'",
        "some_thing": "Version: 2+local\nLicense: BSD\nRequires-Dist: absent",
    }.items():
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\n{lines}\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('NAME="Debian"\nVERSION_ID="13"\nID=debian\n')
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    package = "Package: {}\nStatus: {}\nArchitecture: amd64\nVersion: 1:2.3-4\nDescription: it\n has more: lines\n"
    entries = package.format("libc6", "install ok installed"), package.format("gone", "deinstall ok config-files")
    (tmp_path / "var/lib/dpkg/status").write_text("\n".join(entries))

    found = sbom.build_sbom([str(tmp_path)], tmp_path)

    ours, theirs = "pkg:generic/smart-mcp-proxy@1.1", "pkg:pypi/some-thing@2%2Blocal"
    subject = found["metadata"]["component"]
    assert (subject["type"], subject["purl"], subject["licenses"]) == ("application", ours, [{"expression": "MIT"}])
    first, *others = found["components"]
    assert (first["purl"], first["version"], first["licenses"]) == (theirs, "2+local", [{"license": {"name": "BSD"}}])
    system, python = (each["purl"] for each in others)
    assert system == "pkg:deb/debian/libc6@1%3A2.3-4?arch=amd64&distro=debian-13"
    assert python.startswith("pkg:generic/python@3.")
    assert found["dependencies"] == [{"ref": ours, "dependsOn": [theirs]}, {"ref": theirs, "dependsOn": []}]


@pytest.mark.long  # a third of a second of processor time
def test_each_distribution_of_a_real_environment_is_told_once() -> None:
    """This one's, with a reference of its own each."""
    found = sbom.build_sbom(sys.path, Path("/nowhere"))
    references = [each["bom-ref"] for each in (found["metadata"]["component"], *found["components"])]
    assert len(references) == len(set(references)) > 50
    assert {each["ref"] for each in found["dependencies"]} < set(references)
    assert "fastmcp" in {each["name"] for each in found["components"]}


def test_the_digest_of_the_base_is_asked_of_its_registry(tmp_path: Path) -> None:
    """Of the tag that BASE or the Dockerfile names, without a digest that it has already."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\n[ "$1" = info ] || [ "$6" != "$ASKED" ] || echo sha256:abc\n')
    docker.chmod(0o755)
    default = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)[0].partition("@")[0]
    for base, asked in (("", default), ("debian:x@sha256:old", "debian:x")):
        environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "BASE": base, "ASKED": asked}
        words = [ROOT / "scripts" / "image.sh", "base"]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == f"{asked}@sha256:abc\n"
