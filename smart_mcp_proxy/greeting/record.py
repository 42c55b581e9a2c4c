"""Record of the SDK's answers at the last start with the same program and settings."""

import json
import os
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from smart_mcp_proxy import __version__
from smart_mcp_proxy.desktop.places import PREFIX, data_directory, read_option, server_source
from smart_mcp_proxy.greeting.eras import StdioEras
from smart_mcp_proxy.greeting.instructions import build_instructions

Known = Mapping[str, Mapping[str, str]]
"""Results as JSON, by method, and in each by version of the protocol."""

KEPT = 16
"""Records of one data directory: each client may start the gateway with settings of its own."""

SAYS_NOTHING = {
    *(f"{PREFIX}{name}" for name in ("LOG_LEVEL", "LOG_FILE", "LOG_FORMAT", "DATA_DIR", "CONFIG_PATH", "TRANSPORT")),
    *(f"{PREFIX}{name}" for name in ("SHARED", "KEEP_ALIVE", "ISOLATION")),
}
"""Variables that are left out of the key of a record; where the servers come from is known better."""


class GreetingRecord:
    """The answers of one start, in a file of the data directory.

    Args:
        words: The command line.
        environ: The process's environment.
    """

    def __init__(self, words: list[str], environ: Mapping[str, str]) -> None:
        self._environ = {name: text for name, text in environ.items() if name.startswith(PREFIX) and text}
        self._home = environ.get("HOME", "")
        self._folder = os.path.join(data_directory(environ), "run")
        self._shown = [read_option("--passthrough", words), read_option("--profile", words)]
        self._source = server_source(words, environ)
        self._key = self._present_key()

    @property
    def path(self) -> str:
        """The file."""
        return os.path.join(self._folder, f"greeting-{self._key}.json")

    def load(self) -> tuple[Known, str, StdioEras] | None:
        """The answers, the gateway's name and the eras; None where none hold for this program."""
        try:
            with open(self.path, encoding="utf-8") as file:
                stored = json.load(file)
            if stored["program"] != _marks(stored["program"]):
                return None
            return _require_json_lines(stored["known"]), str(stored["name"]), StdioEras(*stored["eras"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def save(self, known: Known, name: str, eras: StdioEras) -> bool:
        """Keeps the answers for the next start; returns whether anything was written.

        Nothing is where the server file has changed since this start: they may belong to either.
        """
        if self._present_key() != self._key or self.load() == (known, name, eras):
            return False
        text = json.dumps({"name": name, "eras": eras, "program": _marks(_parts_of_the_program()), "known": known})
        part = f"{self.path}.{os.getpid()}"
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(part, self.path)
            self._remove_old()
        except OSError:  # the next start is slower, and that is all
            with suppress(OSError):
                os.unlink(part)
            return False
        return True

    def _present_key(self) -> str:
        facts: list[object] = [__version__, self._shown, self._home, self._source, _sum(self._source)]
        facts += sorted(each for each in self._environ.items() if each[0] not in SAYS_NOTHING)
        text = json.dumps(facts).encode()  # two sums, as hashlib takes the memory of a whole library
        return f"{zlib.crc32(text):08x}{zlib.adler32(text):08x}{len(text):x}"

    def _remove_old(self) -> None:
        with os.scandir(self._folder) as entries:
            found = [each for each in entries if each.name.startswith("greeting-")]  # and parts of what was killed
        for entry in sorted(found, key=lambda each: each.stat().st_mtime_ns, reverse=True)[KEPT:]:
            os.unlink(entry.path)


def default_answers(servers: Sequence[str] = (), *, is_growing: bool = False) -> tuple[Known, str]:
    """The SDK's answers without settings and stored tools, and the gateway's name.

    Written by scripts/regenerate_golden.py.

    Args:
        servers: Those that can be reached. As long as nobody has listened to them, they may have prompts.
        is_growing: Whether searches can change a client's list.
    """
    path = os.path.join(os.path.dirname(__file__), "default.json")
    with open(path, encoding="utf-8") as file:
        stored = json.loads(file.read().replace("VERSION", __version__))
    known: dict[str, dict[str, str]] = {"tools/list": stored["growing tools/list" if is_growing else "tools/list"]}
    for method, by_version in stored["with servers" if servers else "without servers"].items():
        known[method] = {}
        for version, text in by_version.items():
            result = json.loads(text) | {"instructions": build_instructions(servers)}
            result["capabilities"]["tools"]["listChanged"] = is_growing
            known[method][version] = json.dumps(result, separators=(",", ":"), ensure_ascii=False)
    return _require_json_lines(known), str(stored["name"])


def _require_json_lines(known: dict[str, dict[str, str]]) -> Known:
    for text in (text for by_version in known.values() for text in by_version.values()):
        if not text.startswith("{") or "\n" in text:
            raise ValueError("an answer is one JSON object on one line")
    return known


def _parts_of_the_program() -> list[str]:
    """Folders of this package and first files of its libraries: an update changes one.

    Of a folder without bytecode its files: whichever process writes the first bytecode there changes the folder.
    """
    own, parts = os.path.dirname(os.path.dirname(__file__)), []
    for folder, inner, names in os.walk(own):
        if not folder.endswith("__pycache__"):
            parts += [folder] if "__pycache__" in inner else [os.path.join(folder, name) for name in names]
    loaded = [sys.modules.get(name) for name in ("fastmcp", "mcp", "mcp_types", "pydantic_core")]
    return [*parts, *(str(module.__file__) for module in loaded if module is not None)]


def _marks(program: Iterable[str]) -> dict[str, list[int] | None]:
    """Each path with what changes when it does."""
    return {path: _mark(path) for path in program}


def _mark(path: str) -> list[int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size, found.st_ino]


def _sum(path: str) -> int | None:
    """Sum of the file's content: one that is touched, or written anew with the same text, is the same."""
    try:
        with open(path, "rb") as file:
            return zlib.crc32(file.read())
    except OSError:
        return None
