"""Seals: MACs of the rows that approval rests on, under a key that no confined server can read.

The key is in `approvals.key` of the data directory, for its owner alone. Gateways that share a database derive it from
`MCPPROXY_SECRET_KEY`; without that it is in the database, and holds off only those who may not read it there.

What stands is sealed once, by the migration that brings the seals, and only where no key file is there yet: rows
without a seal that turn up later, be it in a whole database of an earlier program, count for nothing.

Refused: *Sealing whatever has no seal at a start.* Removing the key would then be a way to have anything believed.
"""

import hmac
import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from smart_mcp_proxy.catalog.hashing import change_hash
from smart_mcp_proxy.catalog.recovery.damage import alone
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.secrets.auth_key import write_private

KEY_NAME: Final = "approvals.key"
_KEY_BYTES: Final = 32
_LABEL: Final = b"smart-mcp-proxy/approvals/1"


class SealedTrust(NamedTuple):
    """Facts that first lists and policies go by, sealed together, so that a removed row is missed.

    Attributes:
        heard: Servers whose first list was heard.
        blocked: Tools that the user switched off.
    """

    heard: frozenset[str] = frozenset()
    blocked: frozenset[ToolKey] = frozenset()

    @classmethod
    def read(cls, text: str) -> Self:
        """The value that `text` was written from."""
        held = json.loads(text)
        return cls(frozenset(held["heard"]), frozenset(ToolKey(*key) for key in held["blocked"]))

    def write(self) -> str:
        """Canonical text of this value."""
        return json.dumps({"heard": sorted(self.heard), "blocked": sorted(self.blocked)})


class Seals:
    """Makes and checks the seals of one store; its thread is the store's.

    Args:
        data_dir: With the key file, where the store is not shared.
        secret: All gateways' secret; None where there is none.
        is_shared: Whether gateways that have no file in common use the store.
    """

    def __init__(self, data_dir: Path, secret: str | None = None, *, is_shared: bool = False) -> None:
        self._path = data_dir / KEY_NAME
        self._pending = self._path.with_name(f".{KEY_NAME}.new")
        self._secret = secret if is_shared else None
        self._is_shared = is_shared
        self._key = secrets.token_bytes(_KEY_BYTES)
        """Before one is read, and where none can be: nothing was sealed under it."""
        self._is_pending = False

    def load(self, share: Callable[[bytes], bytes]) -> bool:
        """Load the key, made where there is none; return whether nothing can have been sealed under it here.

        Args:
            share: Stores a key in the store if that has none, and returns the stored one.
        """
        if self._secret is not None:
            self._key = hmac.digest(_LABEL, self._secret.encode(), "sha256")
        elif self._is_shared:
            self._key = share(self._key)
        else:
            return self._load_file()
        return True

    def _load_file(self) -> bool:
        is_new = True
        with suppress(OSError), alone(self._path.parent):
            # Under another name until what it sealed is committed: who is killed before that begins anew.
            if is_new := not _is_key(self._path):
                if not _is_key(self._pending):
                    write_private(self._pending, self._key)
                self._key = self._pending.read_bytes()
                self._is_pending = True
            else:
                self._key = self._path.read_bytes()
        return is_new

    def keep(self) -> None:
        """Give the key file its name, once what it sealed is committed; one that was restored meanwhile stays."""
        if not self._is_pending:
            return
        with suppress(OSError), alone(self._path.parent):  # another process was faster, or there is none
            self._pending.replace(self._path)

    def seal(self, kind: str, *values: str | None, text: str | bytes = "") -> str:
        """The seal of a row: HMAC-SHA256 over its values, each with its bounds, and its long text."""
        body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return hmac.digest(self._key, b"%a\n%s" % ((kind, *values), body), "sha256").hex()

    def fits(self, seal: str, kind: str, *values: str | None, text: str | bytes = "") -> bool:
        """Whether a seal is that of these values."""
        return hmac.compare_digest(str(seal).encode("utf-8", "replace"), self.seal(kind, *values, text=text).encode())

    def open_trust(self, text: str, seal: str) -> SealedTrust | None:
        """The value of the sealed row; None where another key has sealed it, or none."""
        return SealedTrust.read(text) if self.fits(seal, "trust", text) else None


def _is_key(path: Path) -> bool:
    return path.exists() and path.stat().st_size >= _KEY_BYTES


def has_hash(server: str, definition: str | bytes, hash_: str | None) -> bool:
    """Whether a stored definition has this change hash."""
    try:
        return change_hash(server, json.loads(definition)) == hash_
    except (TypeError, ValueError, RecursionError):
        return False
