"""Programs of the Node world for the tests that drive the gateway with them, each in a folder of its own of a cache."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "smart-mcp-proxy-tests"
"""Outside the checkout, so that the next one finds what is installed."""
SERVER_EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
SERVER_FILESYSTEM = "@modelcontextprotocol/server-filesystem@2026.8.31"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
TYPESCRIPT_SDK = "@modelcontextprotocol/sdk@1.32.2"
INSTALL_S = 300


@cache
def node_folder() -> Path:
    """The folder of a node that is new enough for the clients; skips the test where there is none to be had."""
    script = ROOT / "scripts" / "node.sh"
    found = subprocess.run([script], capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if found.returncode:
        pytest.skip(f"no node: {found.stderr.strip()}")
    return Path(found.stdout.strip())


def node_environment() -> dict[str, str]:
    """The environment in which that node and its npm are found first."""
    return {**os.environ, "PATH": f"{node_folder()}{os.pathsep}{os.environ['PATH']}"}


@cache
def npm_package(wanted: str, *beside: str) -> Path:
    """The folder of an npm package in exactly this version, with others beside it; skips the test if there is none."""
    name, _, version = wanted.rpartition("@")
    prefix = CACHE / "npm" / re.sub(r"[^a-z0-9.-]+", "-", wanted).strip("-")
    folder = prefix / "node_modules" / name
    if (folder / "package.json").exists() and f'"version": "{version}"' in (folder / "package.json").read_text("utf-8"):
        return folder
    environment = node_environment()
    if shutil.which("npm", path=environment["PATH"]) is None:
        pytest.skip(f"no npm to install {wanted} with")
    prefix.mkdir(parents=True, exist_ok=True)
    flags = ["--no-fund", "--no-audit", "--loglevel=error", "--fetch-retries=1", "--fetch-timeout=60000"]
    command = ["npm", "install", "--prefix", str(prefix), *flags, wanted, *beside]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, env=environment, check=False)
    if done.returncode:
        pytest.skip(f"npm could not install {wanted}: {done.stderr.strip()[-300:]}")
    return folder


def npm_program(wanted: str, executable: str) -> Path:
    """The path of a program that an npm package brings; skips the test where it cannot be had."""
    folder = npm_package(wanted)
    name = wanted.rpartition("@")[0]
    return folder.parents[name.count("/")] / ".bin" / executable
