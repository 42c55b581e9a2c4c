"""Seals: MACs of rows that decide what is let in, under a key that no confined server can read.

The key is in `approvals.key` of the data directory, for its owner alone. Gateways that share a database derive it from
`MCPPROXY_SECRET_KEY`; without that it is in the database, and holds off only those who may not read it there.

What stands is sealed once, by the migration that brings the seals, and only where no key file is there yet: rows
without a seal that turn up later, be it in a whole database of an earlier program, count for nothing.

Refused: *Sealing whatever has no seal at a start.* Removing the key would then be a way to have anything believed.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from smart_mcp_proxy.catalog.hashing import change_hash
from smart_mcp_proxy.catalog.recovery.damage import hold_directory
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.secrets.auth_key import write_private
from smart_mcp_proxy.telemetry import get_logger

KEY_NAME: Final = "approvals.key"
EDITION_NAME: Final = "approvals.edition"
"""Beside the key: the latest `SealedTrust` that a gateway on this folder has seen, whatever is put back meanwhile."""
_KEY_BYTES: Final = 32
_LABEL: Final = b"smart-mcp-proxy/approvals/1"

_log = get_logger("catalog")


class SealedTrust(NamedTuple):
    """Facts that first lists and policies go by, sealed together, so that a removed row is missed.

    Attributes:
        heard: Servers whose first list was heard.
        blocked: Tools that the user switched off.
        edition: Rises with each decision, so that an earlier one that was put back is told from the latest.
        revoked: Tokens that were revoked before their end, by id, with that; None where no token was ever sealed.
        chains: Number of chains of activity records that were begun, so that none leaves unseen.
    """

    heard: frozenset[str] = frozenset()
    blocked: frozenset[ToolKey] = frozenset()
    edition: int = 0
    revoked: Mapping[int, float | None] | None = None
    chains: int = 0

    @classmethod
    def read(cls, text: str) -> Self:
        """The value that `text` was written from."""
        held = json.loads(text)
        blocked = frozenset(ToolKey(*key) for key in held["blocked"])
        stored = held.get("revoked")  # a gateway of an earlier version leaves it out
        revoked = None if stored is None else {int(id_): ends_s for id_, ends_s in stored.items()}
        return cls(frozenset(held["heard"]), blocked, held.get("edition", 0), revoked, held.get("chains", 0))

    def write(self) -> str:
        """Canonical text of this value."""
        held = {"heard": sorted(self.heard), "blocked": sorted(self.blocked), "edition": self.edition}
        return json.dumps(held | {"revoked": self.revoked, "chains": self.chains})


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
        self._problem = ""
        self._edition_file = data_dir / EDITION_NAME
        self.edition = 0
        """Latest of `SealedTrust` that was seen committed, by this process or an earlier one under this key."""
        self._own_edition = 0

    def load(self, share: Callable[[bytes], bytes]) -> bool:
        """Load the key, made where there is none; return whether nothing can have been sealed under it here.

        Args:
            share: Stores a key in the store if that has none, and returns the stored one.
        """
        is_new = True
        if self._secret is not None:
            self._key = hmac.digest(_LABEL, self._secret.encode(), "sha256")
        elif self._is_shared:
            self._key = share(self._key)
        else:
            is_new = self._load_file()
        self.edition = max(self.edition, self._read_edition())
        return is_new

    def see_edition(self, edition: int) -> None:
        """Notes that this edition is committed, so that no start after this one believes an earlier.

        Of many gateways on a database each writes at once what it decided itself. What others decide is in their files,
        and in this one's once it ends: else each decision would cost all gateways a file.
        """
        if edition <= self.edition:
            return
        is_own = self._own_edition > self.edition
        self.edition = edition
        if is_own or not self._is_shared:
            self.keep_edition()

    def note_own(self, edition: int) -> None:
        """Notes that this process is about to commit this edition."""
        self._own_edition = edition

    def keep_edition(self) -> None:
        """Write the latest edition that was seen, where the file has an earlier one."""
        if not self.edition:
            return
        try:
            # Beside a database there may be no data directory yet.
            self._edition_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with hold_directory(self._edition_file.parent):
                if self._read_edition() < self.edition:
                    seal = self.seal(EDITION_NAME, str(self.edition))
                    write_private(self._edition_file, f"{self.edition}\n{seal}\n".encode())
        except OSError as exc:
            _log.warning("'%s' cannot be written, so an earlier record would be believed: %s", self._edition_file, exc)

    def _read_edition(self) -> int:
        """Read the latest edition; 0 where another key has sealed it, which knows nothing of this one's."""
        try:
            edition, seal = self._edition_file.read_text("ascii").split()
            return int(edition) if self.fits(seal, EDITION_NAME, edition) else 0
        except (OSError, ValueError):
            return 0

    def _load_file(self) -> bool:
        self._problem = ""
        try:
            with hold_directory(self._path.parent):
                if _is_key(self._path):
                    self._key = self._path.read_bytes()
                    return False
                if self._path.exists():
                    _log.warning("'%s' holds no key, and is replaced by one", self._path)
                # Under another name until what it sealed is committed: who is killed before that begins anew.
                if not _is_key(self._pending):
                    write_private(self._pending, self._key)
                self._key = self._pending.read_bytes()
                self._is_pending = True
        except OSError as exc:
            self._problem = f"'{self._path}' cannot be {'read' if self._path.exists() else 'made'}: {exc.strerror}."
            _log.warning("the key of what is decided about tools: %s", self._problem)
        return True

    @property
    def is_kept(self) -> bool:
        """Whether the next start will find the key."""
        return not self._problem

    def require_kept(self) -> None:
        """Pass if the next start will find the key; else nothing may be sealed under it.

        Raises:
            CatalogError: It is in memory alone.
        """
        if self._problem:
            hint = "Let this user read and write it, and restart. Remove it first if it is lost for good."
            raise CatalogError(f"Decisions about tools cannot be sealed: {self._problem}", hint=hint)

    def keep(self) -> None:
        """Give the key file its name, once what it sealed is committed; one that was restored meanwhile stays."""
        if not self._is_pending:
            return
        with suppress(OSError), hold_directory(self._path.parent):  # another process was faster, or there is none
            self._pending.replace(self._path)

    def seal(self, kind: str, *values: float | str | None, text: str | bytes = "") -> str:
        """The seal of a row: HMAC-SHA256 over its values, each with its bounds, and its long text."""
        body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return hmac.digest(self._key, b"%a\n%s" % ((kind, *values), body), "sha256").hex()

    def seal_fast(self, kind: bytes, body: bytes) -> str:
        """The seal of one of very many rows: 128 bits of keyed BLAKE2b, in a third of the time.

        Source: RFC 7693, section 2.9
        """
        return hashlib.blake2b(body, digest_size=16, key=self._key, person=kind).hexdigest()

    def fits(self, seal: str, kind: str, *values: float | str | None, text: str | bytes = "") -> bool:
        """Whether a seal is that of these values."""
        return hmac.compare_digest(str(seal).encode("utf-8", "replace"), self.seal(kind, *values, text=text).encode())

    def seal_box(self, kind: str, key: str, data: bytes, expires_s: float | None = None) -> bytes:
        """Return data that may be read by anybody, with its seal as a value of this kind under this key."""
        return f"{self.seal(f'box {kind}', key, expires_s, text=data)} ".encode() + data

    def open_box(self, kind: str, key: str, box: bytes, expires_s: float | None = None) -> bytes | None:
        """The data that was sealed as this value; None where it was not."""
        seal, _, data = box.partition(b" ")
        is_ours = self.fits(seal.decode("ascii", "replace"), f"box {kind}", key, expires_s, text=data)
        return data if is_ours else None

    def open_trust(self, text: str, seal: str, *, is_put_back: bool = False) -> SealedTrust | None:
        """The value of the sealed row; None where another key has sealed it, or none, or a later one was seen.

        Args:
            text: Of the row.
            seal: Of the row.
            is_put_back: Whether a person has put it back, so that an earlier one counts.
        """
        trust = SealedTrust.read(text) if self.fits(seal, "trust", text) else None
        return trust if trust is None or is_put_back or trust.edition >= self.edition else None


def _is_key(path: Path) -> bool:
    return path.exists() and path.stat().st_size >= _KEY_BYTES


def has_hash(server: str, definition: str | bytes, hash_: str | None) -> bool:
    """Whether a stored definition has this change hash."""
    try:
        return change_hash(server, json.loads(definition)) == hash_
    except (TypeError, ValueError, RecursionError):
        return False
