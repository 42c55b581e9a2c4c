"""Runtimes of scripts: the two optional packages, and each language's command line."""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from smart_mcp_proxy.errors import MissingExtraError

Language = Literal["python", "javascript"]
CodeSetting = Literal["off", "python", "javascript", "both"]

_HERE = Path(__file__).parent
_OWN_BYTES: Final[dict[Language, int]] = {"python": 256 << 20, "javascript": 640 << 20}
"""Memory that a runtime reserves before a script runs, with some room: deno starts with 576 MiB and not with 512, most
of it never touched; Python starts with 64."""
_DENO_FLAGS: Final = (
    "--quiet",
    "--no-prompt",
    "--no-remote",
    "--no-npm",
    "--cached-only",
    "--no-config",
    "--no-lock",
    "--no-code-cache",
)
_PACKAGES: Final[dict[Language, tuple[str, str]]] = {
    "python": ("pydantic_monty", "pydantic-monty"),
    "javascript": ("deno", "deno"),
}


def _is_installed(module: str) -> bool:
    return find_spec(module) is not None


def runnable(
    setting: CodeSetting, is_installed: Callable[[str], bool] = _is_installed
) -> tuple[CodeSetting, tuple[MissingExtraError, ...]]:
    """Return the part of `MCPPROXY_CODE` that can run, and an error per missing language.

    Args:
        setting: What the settings ask for.
        is_installed: Whether a module can be imported.
    """
    missing = [name for name in list_languages(setting) if not is_installed(_PACKAGES[name][0])]
    errors = tuple(
        MissingExtraError(
            f"MCPPROXY_CODE={setting} needs {_PACKAGES[name][1]} for {name}",
            hint=f"Install it: pip install {_PACKAGES[name][1]}",
        )
        for name in missing
    )
    left = [name for name in list_languages(setting) if name not in missing]
    return (setting if not missing else left[0] if left else "off"), errors


def list_languages(setting: CodeSetting) -> tuple[Language, ...]:
    """The languages that a value of `MCPPROXY_CODE` stands for."""
    return tuple(name for name in _PACKAGES if setting in (name, "both"))


def command(language: Language, memory_bytes: int) -> list[str]:
    """The command of a process that runs one script of this language.

    Args:
        language: One that is installed.
        memory_bytes: What the script itself may use.

    Raises:
        MissingExtraError: It is not installed any more.
    """
    launch = [sys.executable, "-I", "-S", "-B", str(_HERE / "launch.py"), str(memory_bytes + _OWN_BYTES[language])]
    if language == "python":
        return [*launch, sys.executable, "-I", "-B", str(_HERE / "python_child.py")]
    heap = f"--v8-flags=--max-old-space-size={memory_bytes >> 20}"
    return [*launch, _deno(), "run", *_DENO_FLAGS, heap, str(_HERE / "javascript_child.mjs")]


def _deno() -> str:
    try:
        # Imported on use: an optional package.
        from deno import find_deno_bin

        return str(find_deno_bin())
    except (ImportError, FileNotFoundError) as exc:
        raise MissingExtraError("JavaScript needs deno", hint="Install it: pip install deno") from exc
