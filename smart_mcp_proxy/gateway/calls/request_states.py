"""States that clients keep for servers between two rounds, sealed to their request.

A server's own state never leaves the gateway: a client gets it encrypted, bound to whom it was given, to the server,
to what was called and with which arguments, and for a while. Any process with the same data directory can open it, and
any gateway on the same database.
"""

import asyncio
import base64
import hashlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from mcp.server import request_state

from smart_mcp_proxy.catalog import Catalog, canonical_json, gateway_key
from smart_mcp_proxy.errors import CatalogError, RequestError
from smart_mcp_proxy.secrets import auth_key
from smart_mcp_proxy.secrets.sealing import SecretKey
from smart_mcp_proxy.telemetry import fields, get_logger

INVALID_STATE: Final = "invalid_request_state"
"""The error code; as JSON-RPC it is -32602.

Source: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr"""
TTL_S: Final = 600.0
"""Seconds that a client may take to answer: the default of the SDK's own `RequestStateSecurity`."""
_KEY_FILE: Final = "request-state.key"
_STORED_NAME: Final = "request state"
_LABEL: Final = b"smart-mcp-proxy/request-state/1"
"""Part of what is hashed: no other text of ours can be taken for a binding."""

log = get_logger("inputs")


class Subject(msgspec.Struct, frozen=True):
    """Identity of a request: the facts that must be equal in both rounds.

    Attributes:
        principal: On whose behalf.
        server: Configured name.
        method: Of the protocol.
        name: The server's own name of the tool or prompt, or its URI of the resource.
        arguments: As the server gets them.
        definition: Change hash of what is called, as approved; empty where there is no definition.
    """

    principal: str
    server: str
    method: str
    name: str
    arguments: Mapping[str, Any]
    definition: str

    def compute_binding(self) -> str:
        """Hash the facts that must be equal in the next round."""
        facts = [self.principal, self.server, self.method, self.name, dict(self.arguments), self.definition]
        return hashlib.sha256(_LABEL + canonical_json(facts)).hexdigest()


class StatePayload(msgspec.Struct, frozen=True):
    """Contents of a sealed state.

    Attributes:
        binding: See `Subject.compute_binding`.
        until_s: Wall time from which on it is no longer taken, seconds.
        round: How often the server has asked, this time included.
        state: The server's own; None if it gave none.
    """

    binding: str
    until_s: float
    round: int
    state: str | None


_kept = msgspec.json.Decoder(StatePayload, strict=True)


@dataclass(eq=False, repr=False)
class RequestStates:
    """Seals and opens states, in threads.

    Arguments may be long, and the key is in a file.

    Attributes:
        data_dir: Holds the key.
        wall: Seconds since the epoch; another process may have sealed what is opened here.
        secret: Has the key of gateways on many machines; None where the data directory's counts, until another one
            is shared.
    """

    data_dir: Path
    wall: Callable[[], float] = time.time
    _: KW_ONLY
    secret: SecretKey | None = None

    def __post_init__(self) -> None:
        self._own: bytes | None = None
        self._codec: request_state.AESGCMRequestStateCodec | None = None
        self._lock = threading.Lock()

    async def share(self, key: bytes) -> None:
        """Seal with the key of all gateways on a store from now on.

        What this data directory's key has sealed can still be opened here: the id of a task is kept for weeks.
        """
        await asyncio.to_thread(self._share, key)

    async def seal(self, subject: Subject, state: str | None, number: int) -> str:
        """Seal a server's state for the client, in the round of this number."""
        return await asyncio.to_thread(self._seal, subject, state, number)

    async def open(self, subject: Subject, sealed: str) -> StatePayload:
        """Open a state that a client returned.

        Raises:
            RequestError: It was not given for this request, it is not ours, or it is too old; which of them is not
                told.
        """
        return await asyncio.to_thread(self._open, subject, sealed)

    async def seal_text(self, text: bytes) -> str:
        """Seal any text of the gateway's own, for whoever has the key."""
        return await asyncio.to_thread(lambda: self._ready().seal(text))

    async def open_text(self, sealed: str) -> bytes | None:
        """Open what `seal_text` sealed; None for anything else."""
        try:
            return await asyncio.to_thread(lambda: self._ready().unseal(sealed))
        except (request_state.InvalidRequestState, ValueError) as exc:
            log.info("an id was refused: %s", exc)
            return None

    def _seal(self, subject: Subject, state: str | None, number: int) -> str:
        kept = StatePayload(subject.compute_binding(), self.wall() + TTL_S, number, state)
        return self._ready().seal(msgspec.json.encode(kept))

    def _open(self, subject: Subject, sealed: str) -> StatePayload:
        try:
            kept = _kept.decode(self._ready().unseal(sealed))
        except (request_state.InvalidRequestState, msgspec.MsgspecError, ValueError) as exc:
            raise _invalid(subject, str(exc)) from exc
        if not secrets.compare_digest(kept.binding, subject.compute_binding()):
            raise _invalid(subject, "it was given for another request, or to another caller")
        if not self.wall() < kept.until_s:
            raise _invalid(subject, "it is too old")
        return kept

    def _ready(self) -> "request_state.AESGCMRequestStateCodec":
        with self._lock:
            if self._codec is None:
                self._own = self._key()
                self._codec = request_state.AESGCMRequestStateCodec([self._own])
            return self._codec

    def _share(self, key: bytes) -> None:
        with self._lock:
            earlier = self._own
            if earlier is None:
                with suppress(OSError, auth_key.UnusableFileError):  # none was made, or nothing can be opened with it
                    earlier = self._read_stored_key()
            keys = [key] if earlier is None else [key, earlier]
            self._codec = request_state.AESGCMRequestStateCodec(keys)

    def _key(self) -> bytes:
        """The gateways' key, else the data directory's, made the first time."""
        if self.secret is not None:
            return self.secret.key(_STORED_NAME)
        file = self.data_dir / _KEY_FILE
        try:
            with auth_key.lock_file(file.with_suffix(".lock")):
                try:
                    return self._read_stored_key()
                except FileNotFoundError:
                    key = secrets.token_bytes(auth_key.KEY_BYTES)
                    auth_key.write_private(file, base64.b64encode(key))
                    return key
        except (OSError, auth_key.UnusableFileError) as exc:
            log.warning("what servers ask can be answered to this process alone, another one has another key: %s", exc)
            return os.urandom(auth_key.KEY_BYTES)

    def _read_stored_key(self) -> bytes:
        text = auth_key.read_private(self.data_dir / _KEY_FILE)
        return auth_key.decode_key(text, f"{_KEY_FILE} is damaged: remove it, and a new one is made")


class StateKey:
    """Brings the key of all gateways on a store to this one's states.

    It is asked for at the start and with heartbeats, never by a call: none waits for the database. Processes on one
    data directory need none of it, their key is a file there that outlives the catalog beside it.

    Args:
        catalog: Its store keeps the key.
        states: Get it.
        is_given: Whether the gateways were given a secret key, from which theirs comes.
    """

    def __init__(self, catalog: Catalog, states: RequestStates, *, is_given: bool) -> None:
        self._catalog = catalog
        self._states = states
        self._is_due = catalog.is_shared and not is_given
        self._has_failed = False

    def __repr__(self) -> str:
        return f"<StateKey {'not had yet' if self._is_due else 'settled'}>"

    async def bring(self) -> None:
        """Take the key from the store, or make it there if this is the first gateway.

        If the store fails, the next call of this method tries again.

        Until then states are sealed with a key of this gateway's own, and go on to be opened with it: a start or a
        call that failed over this would cost more than a question that has to be answered at the same gateway.
        """
        if not self._is_due:
            return
        take = partial(gateway_key, name=_STORED_NAME, made=secrets.token_bytes(auth_key.KEY_BYTES))
        try:
            key = await self._catalog.write(take, is_ordered=False)
        except CatalogError as exc:
            if not self._has_failed:
                log.warning(
                    "until the database can be used, what servers ask is answered at this gateway alone: %s", exc
                )
            self._has_failed = True
            return
        await self._states.share(key)
        self._is_due = False


def _invalid(subject: Subject, reason: str) -> RequestError:
    log.info(
        "a requestState for server %s was refused: %s", subject.server, reason, extra=fields(server=subject.server)
    )
    return RequestError(
        "The requestState is not valid for this request: it was given for another one, or is too old, or was changed.",
        hint="Make the call again without requestState and inputResponses, with the same arguments as before.",
        code=INVALID_STATE,
        data={"reason": INVALID_STATE},
    )
