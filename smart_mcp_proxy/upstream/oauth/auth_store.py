"""Stores of sign-ins: encrypted files, and a memory in front of a store that fails."""

import asyncio
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from smart_mcp_proxy.errors import ConfigError, UpstreamAuthError, UpstreamError
from smart_mcp_proxy.names import login_hint
from smart_mcp_proxy.secrets.aes_edge import decrypt, encrypt
from smart_mcp_proxy.secrets.auth_key import SignInKey, UnusableFileError, read_private, write_private
from smart_mcp_proxy.telemetry import fields, get_logger

_log = get_logger("upstream")

_NONCE_BYTES: Final = 12
"""96 bits for GCM. Source: https://csrc.nist.gov/pubs/sp/800/38/d/final"""
_LOCK_POLL_S: Final = 0.05
_LOCK_S: Final = 60.0
"""Longer than one process can need for a refresh."""

Stamp = str | None
"""Tells one stored state from another; None where nothing is stored."""


class EndedSignInError(UpstreamAuthError):
    """A sign-in that nothing but a new one can follow on: nobody need try to renew it again."""


class SignIn(msgspec.Struct, frozen=True):
    """Tokens of one sign-in and what renews them, bound to one issuer.

    Attributes:
        issuer: The authorization server.
        metadata: What it said of itself, as RFC 8414 has it.
        resource_metadata: What the server said of itself, as RFC 9728 has it; None where it says nothing.
        client: Who we are to the authorization server, as RFC 7591 has it.
        access_token: What the server is sent.
        refresh_token: What brings the next one; empty if there is none (any more).
        scope: What was granted, as far as is known.
        obtained_at_s: When, in seconds since the epoch.
        expires_at_s: Until when the access token is good, in seconds since the epoch; 0 if nobody said.
        wanted_scope: What the server has asked for besides; the next sign-in asks for it as well.
        proof_key: Private key that the tokens are bound to, as a JSON Web Key; empty if they are bound to none.
        is_proved: The access token is sent with proofs; else it is a bearer token.
        since_s: When the person signed in, whatever was renewed since; 0 where that was not kept.
    """

    issuer: str
    metadata: dict[str, Any]
    resource_metadata: dict[str, Any] | None
    client: dict[str, Any]
    access_token: str
    refresh_token: str
    scope: str
    obtained_at_s: float
    expires_at_s: float
    wanted_scope: str = ""
    proof_key: str = ""
    is_proved: bool = False
    since_s: float = 0.0

    def __repr__(self) -> str:
        return f"<SignIn at {self.issuer}>"


class _Sealed(msgspec.Struct):
    """A file as it is written."""

    key: str
    issuer: str
    nonce: bytes
    box: bytes


class SignInStore(Protocol):
    """Keeps sign-ins by server and address, for all gateways that use it."""

    async def stamps(self, places: Sequence[tuple[str, str]]) -> Sequence[Stamp]:
        """Stamps of what is stored for each server and address; a sign-in, renewal or sign-out changes one.

        Raises:
            UpstreamError: The store fails.
        """

    async def read(self, server: str, url: str) -> tuple[SignIn | None, Stamp]:
        """The sign-in at this server under this address, and its stamp; None each if there is none.

        Raises:
            UpstreamAuthError: What is stored cannot be used; the message says why.
            UpstreamError: The store fails.
        """

    async def write(self, server: str, url: str, sign_in: SignIn) -> Stamp:
        """Stores a sign-in in place of the last one; returns its stamp.

        Raises:
            ConfigError: It cannot be stored.
        """

    async def remove(self, server: str, url: str) -> bool:
        """Whether there was a sign-in to forget.

        Raises:
            ConfigError: The store fails.
        """

    def hold_lock(self, server: str, url: str) -> AbstractAsyncContextManager[None]:
        """Lets one at a time change this sign-in, among all tasks and gateways: refresh tokens work once.

        Raises:
            ConfigError: The lock cannot be had.
        """


class SignInFiles:
    """Keeps sign-ins in files, in threads.

    Args:
        folder: Where; made when something is stored.
        key: What encrypts them; by default the keyring's key, or that of a file in the folder.
    """

    def __init__(self, folder: Path, key: SignInKey | None = None) -> None:
        self._folder = folder
        self._key = key or SignInKey(folder)

    def __repr__(self) -> str:
        return f"<SignInFiles {self._folder}>"

    async def stamps(self, places: Sequence[tuple[str, str]]) -> list[Stamp]:
        """Stamps of these servers and addresses."""
        return await asyncio.to_thread(lambda: [self._stamp(*place) for place in places])

    async def read(self, server: str, url: str) -> tuple[SignIn | None, Stamp]:
        """The sign-in at this server under this address, None if there is none, and its stamp.

        Raises:
            UpstreamAuthError: What is stored cannot be used; the message says why.
        """
        return await asyncio.to_thread(self._read, server, url)

    async def write(self, server: str, url: str, sign_in: SignIn) -> Stamp:
        """Stores a sign-in in place of the last one; returns its stamp.

        Raises:
            ConfigError: The folder cannot be written.
        """
        return await asyncio.to_thread(self._write, server, url, sign_in)

    async def remove(self, server: str, url: str) -> bool:
        """Whether there was a sign-in to forget."""
        return await asyncio.to_thread(self._remove, server, url)

    def _stamp(self, server: str, url: str) -> Stamp:
        try:
            facts = self._path(server, url).lstat()
        except OSError:
            return None
        return f"{facts.st_ino} {facts.st_mtime_ns} {facts.st_size}"

    def _read(self, server: str, url: str) -> tuple[SignIn | None, Stamp]:
        stamp = self._stamp(server, url)  # first: what is stored in between is read again
        try:
            sealed = msgspec.json.decode(read_private(self._path(server, url)), type=_Sealed)
            key = self._key.load(sealed.key)
            box = decrypt(key, sealed.nonce, sealed.box, _build_associated_data(server, url, sealed.issuer))
            return msgspec.json.decode(box, type=SignIn), stamp
        except FileNotFoundError:
            return None, None
        except UnusableFileError as exc:
            reason = str(exc)
        except (msgspec.MsgspecError, ValueError):
            reason = "it is damaged, or was written for another server"
        raise UpstreamAuthError(
            f"The stored sign-in at server '{server}' cannot be used: {reason}.", hint=login_hint(server)
        )

    def _write(self, server: str, url: str, sign_in: SignIn) -> Stamp:
        try:
            self._make_folder()
            key, place = self._key.load_or_make()
            nonce = secrets.token_bytes(_NONCE_BYTES)
            box = encrypt(key, nonce, msgspec.json.encode(sign_in), _build_associated_data(server, url, sign_in.issuer))
            write_private(self._path(server, url), msgspec.json.encode(_Sealed(place, sign_in.issuer, nonce, box)))
        except (OSError, UnusableFileError) as exc:
            raise ConfigError(
                f"The sign-in at server '{server}' cannot be stored under {self._folder}: {exc}.",
                hint="Check the data directory's owner and permissions.",
            ) from exc
        return self._stamp(server, url)

    def _remove(self, server: str, url: str) -> bool:
        try:
            self._path(server, url).unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def hold_lock(self, server: str, url: str) -> AsyncIterator[None]:
        """Lets one at a time change this sign-in, among all tasks and processes: refresh tokens work once.

        Raises:
            ConfigError: The lock cannot be had.
        """
        try:
            await asyncio.to_thread(self._make_folder)
            path = self._path(server, url).with_suffix(".lock")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise ConfigError(f"{self._folder} cannot be written: {exc.strerror}.", hint="Check its owner.") from exc
        try:
            await _wait_lock(descriptor, path)
            yield
        finally:
            os.close(descriptor)

    def _path(self, server: str, url: str) -> Path:
        return self._folder / f"{hashlib.sha256(_build_associated_data(server, url, '')).hexdigest()[:32]}.json"

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _build_associated_data(server: str, url: str, issuer: str) -> bytes:
    """Associated data of a stored sign-in; a file moved to another server cannot be opened there."""
    return json.dumps([server, url, issuer]).encode()


async def _wait_lock(descriptor: int, path: Path) -> None:
    try:
        async with asyncio.timeout(_LOCK_S):
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                await asyncio.sleep(_LOCK_POLL_S)
    except TimeoutError:
        raise ConfigError(f"Another process has held {path} for {_LOCK_S:g} s.", hint="Stop it.") from None


class RememberingStore:
    """A store of sign-ins that remembers: a failed write is not lost, and the last read is still known.

    Refresh tokens work once. The one that a renewal brought counts here although it could not be stored: the stored
    one is used up.

    Args:
        store: Keeps them.
    """

    def __init__(self, store: SignInStore) -> None:
        self._store = store
        self._unstored: dict[tuple[str, str], SignIn] = {}
        self._known: dict[tuple[str, str], tuple[SignIn, Stamp]] = {}
        self._has_failed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<RememberingStore, {len(self._unstored)} not stored in {self._store!r}>"

    async def stamps(self, places: Sequence[tuple[str, str]]) -> Sequence[Stamp]:
        """Stamps of what is stored; see `SignInStore`."""
        return await self._store.stamps(places)

    async def read(self, server: str, url: str) -> tuple[SignIn | None, Stamp]:
        """The newest sign-in, and the stamp of the stored one; see `SignInStore`."""
        stored, stamp = await self._store.read(server, url)
        newest = self._newest(server, url, stored)
        self._known.pop((server, url), None)
        if newest is not None:
            self._known[server, url] = newest, stamp
        return newest, stamp

    def recall_entry(self, server: str, url: str) -> tuple[SignIn, Stamp] | None:
        """The sign-in that was read or stored last, and its stamp, for while the store cannot be read."""
        return self._known.get((server, url))

    async def write(self, server: str, url: str, sign_in: SignIn) -> Stamp:
        """Store a sign-in, or remember it and raise; see `SignInStore`."""
        _, stamp = self._known.get((server, url), (sign_in, None))
        self._known[server, url] = sign_in, stamp
        try:
            stamp = await self._store.write(server, url, sign_in)
        except ConfigError:
            self._unstored[server, url] = sign_in
            self._has_failed.set()
            raise
        self._unstored.pop((server, url), None)
        self._known[server, url] = sign_in, stamp
        return stamp

    async def remove(self, server: str, url: str) -> bool:
        """Forget a sign-in; see `SignInStore`."""
        self._unstored.pop((server, url), None)
        self._known.pop((server, url), None)
        return await self._store.remove(server, url)

    def hold_lock(self, server: str, url: str) -> AbstractAsyncContextManager[None]:
        """Let one at a time change this sign-in; see `SignInStore`."""
        return self._store.hold_lock(server, url)

    async def wait_unstored(self) -> None:
        """Return once there is something that could not be stored."""
        while not self._unstored:
            self._has_failed.clear()
            await self._has_failed.wait()

    async def catch_up(self) -> None:
        """Store what could not be stored; what fails again is tried again with the next call."""
        for server, url in tuple(self._unstored):
            try:
                async with self._store.hold_lock(server, url):
                    try:
                        stored, _ = await self._store.read(server, url)
                        newest = self._newest(server, url, stored)
                    except UpstreamAuthError:  # nobody can open it: there is nothing newer to give way to
                        stored, newest = None, self._unstored.get((server, url))
                    if newest is not None and newest is not stored:
                        await self.write(server, url, newest)
                        _log.warning("the sign-in at server %s is stored again", server, extra=fields(server=server))
            except (ConfigError, UpstreamError) as exc:
                _log.debug("the sign-in at server %s is not stored yet: %s", server, exc)

    def _newest(self, server: str, url: str, stored: SignIn | None) -> SignIn | None:
        """The sign-in that counts: not one that was given back, or replaced by signing in anew."""
        unstored = self._unstored.get((server, url))
        if unstored is None:
            return stored
        if stored is None or stored.obtained_at_s > unstored.obtained_at_s:
            del self._unstored[server, url]
            return stored
        return unstored
