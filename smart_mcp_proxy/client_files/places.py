"""Places of the clients' files on this machine."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from smart_mcp_proxy.client_files.clients import KnownClient

_CONFIG_HOME = "~/.config/"


class Places(msgspec.Struct, frozen=True):
    """Places of the user's and of a project's files.

    Attributes:
        environ: The environment, which may move some of them.
        project: Folder of the project that is looked at.
        platform: As `sys.platform`.
    """

    environ: Mapping[str, str]
    project: Path
    platform: str = sys.platform

    @property
    def home(self) -> Path:
        """The user's home."""
        return Path(self.environ.get("HOME") or Path.home())

    def user_files(self, client: KnownClient) -> list[Path]:
        """Places where the client may keep the user's servers, the likeliest first."""
        written = client.mac if self.platform == "darwin" and client.mac else client.linux
        return [path for each in written if (path := self._path(each)) is not None]

    def user_file(self, client: KnownClient) -> Path:
        """The one of these that exists, else the likeliest."""
        candidates = self.user_files(client)
        return next((path for path in candidates if os.path.lexists(path)), candidates[0])

    def project_file(self, client: KnownClient) -> Path | None:
        """The project's file, whether it exists or not; None where the client has none."""
        return self.project / client.project if client.project else None

    def is_installed(self, client: KnownClient) -> bool:
        """Whether something here tells that the client is used."""
        signs = [path for each in client.signs if (path := self._path(each)) is not None]
        for file in self.user_files(client):
            signs.append(file)
            if file.parent != self.home:
                signs.append(file.parent)
        return any(map(os.path.lexists, signs))

    def _path(self, written: str) -> Path | None:
        if written.startswith("$"):
            variable, _, rest = written[1:].partition("/")
            return Path(value, rest) if (value := self.environ.get(variable)) else None
        if written.startswith(_CONFIG_HOME) and (value := self.environ.get("XDG_CONFIG_HOME")):
            return Path(value, written.removeprefix(_CONFIG_HOME))
        return self.home / written.removeprefix("~/")
