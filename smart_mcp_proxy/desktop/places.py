"""Files by which clients of a user meet: data directory, server file, socket of their gateway."""

import os
import re
import zlib
from collections.abc import Mapping, Sequence

_RELATIVE = re.compile(
    rb'"(?:\.{1,2}(?:[/\\][^"\n]*)?|(?:[\w.-]+/)*[\w.-]+\.(?:py|js|mjs|cjs|ts|mts|sh|rb|jar|php|pl))"'
    rb'|"command"\s*:\s*"[\w.-]+/[^"\n]*"'
)
"""A text that names a file below or above the working directory."""
PREFIX = "MCPPROXY_"
CONFIG_NAME = "mcp_config.json"
SOCKET_PATH_LIMIT = 100
"""Bytes of a Unix socket's path; Linux allows 107, macOS 103."""
_MESSAGE_BYTES = 16 * 1024 * 1024
"""As the settings have it."""
FIRST_MESSAGE_BYTES = 16_384
"""Most bytes of a first message: what a client says of itself takes less; a longer message is the SDK's."""
_FLAGS = {"--config", "--passthrough", "--profile"}
"""Options of `serve` with which a client may be met on stdio; each has a value."""
_SWITCHES = {"--alone"}
_LONG_NAMES = 19
"""Most bytes that the name of a socket takes, with the slash before it."""


def data_directory(environ: Mapping[str, str]) -> str:
    """The data directory as the settings read it: empty is unset, and what no shell has expanded is."""
    return os.path.abspath(os.path.expanduser(environ.get(f"{PREFIX}DATA_DIR") or "~/.mcpproxy"))


def server_files(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Paths at which the server file may be, the first that exists counts."""
    if named := read_option("--config", words) or environ.get(f"{PREFIX}CONFIG_PATH"):
        return [os.path.abspath(os.path.expanduser(named))]
    data = data_directory(environ)
    # What a server may have put there is no server file before its user names it.
    folders = [data] if os.path.exists(open_folder_mark(data, os.getcwd())) else [os.getcwd(), data]
    return [os.path.join(folder, CONFIG_NAME) for folder in folders]


def open_folder_mark(data_dir: str, folder: str) -> str:
    """Path of the mark that a server in the sandbox may make or change a server file in this folder."""
    real = os.path.realpath(folder)
    return os.path.join(data_dir, "sandbox", f"open-{zlib.crc32(os.fsencode(real)):08x}-{len(real)}")


def server_source(words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Source of the servers, the same text for all that read the same: a path, or a sum of JSON text."""
    if text := environ.get(f"{PREFIX}CONFIG_JSON"):
        return f"json:{zlib.crc32(text.encode(errors='surrogateescape')):08x}:{len(text)}"
    files = server_files(words, environ)
    return os.path.realpath(next((file for file in files if os.path.lexists(file)), files[-1]))


def meeting_point(words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Text that clients have in common which share a gateway on one data directory.

    The source of the servers, and the working directory as well where an entry names a program or a script by its place
    in there: a gateway elsewhere would not find it.
    """
    source = server_source(words, environ)
    return f"{source} in {os.getcwd()}" if names_relative_files(source, environ) else source


def names_relative_files(source: str, environ: Mapping[str, str]) -> bool:
    """Whether an entry depends on where the gateway runs; as a text, whatever form the file has."""
    text = environ.get(f"{PREFIX}CONFIG_JSON", "").encode(errors="surrogateescape")
    if not text:
        try:
            with open(source, "rb") as file:
                text = file.read()
        except OSError:  # who needs it says so
            return False
    return _RELATIVE.search(text) is not None


def read_network() -> int:
    """Number of this process's network namespace; 0 where none is seen."""
    try:
        return os.stat("/proc/self/ns/net").st_ino
    except OSError:  # not Linux, or hidden
        return 0


def sockets_folder(data_dir: str) -> str:
    """Folder of a data directory's sockets: its own, or a short one where its path is too long."""
    folder = os.path.join(data_dir, "run")
    if len(os.fsencode(folder)) + _LONG_NAMES <= SOCKET_PATH_LIMIT:
        return folder
    return f"/tmp/mcpproxy-{os.getuid()}/{zlib.crc32(os.fsencode(os.path.realpath(data_dir))):08x}"


def shared_socket(data_dir: str, source: str) -> str:
    """Path of the socket at which clients join the gateway of a data directory and a source of servers."""
    return os.path.join(sockets_folder(data_dir), f"join-{zlib.crc32(os.fsencode(source)):08x}.sock")


def make_private(folder: str) -> None:
    """Makes a folder of this user's alone.

    Raises:
        OSError: It cannot be made, or belongs to somebody else.
    """
    is_short = folder.startswith("/tmp/mcpproxy-")
    for each in (os.path.dirname(folder), folder) if is_short else (folder,):
        os.makedirs(each, mode=0o700, exist_ok=True)  # the umask holds for the folders above it
        found = os.lstat(each)
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise PermissionError(1, "Other users can write to it, or it is theirs", each)


def describe_failure(exc: OSError) -> str:
    """Place and reason of a failure on a client's way to the gateway."""
    return f"{exc.filename or 'the system'}: {exc.strerror or exc}"


def words_for_stdio(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether these words start a gateway that a client meets on stdio, and nothing else."""
    if environ.get(f"{PREFIX}TRANSPORT", "stdio") not in ("", "stdio") or (words and words[0] != "serve"):
        return False
    limit = environ.get(f"{PREFIX}MAX_MESSAGE_BYTES", "")
    if limit.isdecimal() and int(limit) < FIRST_MESSAGE_BYTES:
        return False
    rest = list(words[1:])
    while rest:
        name, equals, _ = rest.pop(0).partition("=")
        if name in _SWITCHES and not equals:
            continue
        if name not in _FLAGS or not (equals or rest):
            return False
        if not equals:
            rest.pop(0)
    return True


def read_message_limit(environ: Mapping[str, str]) -> int:
    """Bytes of a message, as far as the settings are well-formed."""
    text = environ.get(f"{PREFIX}MAX_MESSAGE_BYTES", "")
    return int(text) if text.isdecimal() else _MESSAGE_BYTES


def read_option(flag: str, words: Sequence[str]) -> str | None:
    """The value of a flag among the words of a command line; None where it is not there."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word[len(flag) + 1 :]
    return None
