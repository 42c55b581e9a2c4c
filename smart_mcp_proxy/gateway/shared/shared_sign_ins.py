"""Sign-ins at servers in a store that gateways share, encrypted with a key that is not in it."""

import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

import msgspec

from smart_mcp_proxy.catalog import Catalog, SealedValue, open_catalog, sealed
from smart_mcp_proxy.errors import CatalogError, ConfigError, UpstreamAuthError, UpstreamError
from smart_mcp_proxy.gateway.shared.turns import GIVE_UP_S, turn
from smart_mcp_proxy.names import login_hint
from smart_mcp_proxy.secrets.sealing import SealBrokenError, SecretKey, open_sealed, seal
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import SignIn, SignIns, TlsContext

KIND: Final = "sign-in"


class SharedSignIns:
    """Keeps sign-ins for all gateways on one store.

    Args:
        catalog: Its store keeps them.
        secret: What encrypts them; None where none is configured, and then there are none.
    """

    def __init__(self, catalog: Catalog, secret: SecretKey | None) -> None:
        self._catalog = catalog
        self._secret = None if secret is None else secret.key(KIND)

    def __repr__(self) -> str:
        return f"<SharedSignIns in {self._catalog!r}>"

    async def stamps(self, places: Sequence[tuple[str, str]]) -> list[str | None]:
        """Stamps of what is stored for these servers and addresses; None where there is none."""
        try:
            stamps = await self._catalog.read(partial(sealed.read_stamps, kind=KIND))
        except CatalogError as exc:
            raise UpstreamError(exc.message, hint=exc.hint) from exc
        return [stamps.get(_name(server, url)) for server, url in places]

    async def read(self, server: str, url: str) -> tuple[SignIn | None, str | None]:
        """The sign-in at this server under this address, and its stamp; None each if there is none.

        Raises:
            UpstreamAuthError: What is stored cannot be used; the message says why.
            UpstreamError: The store fails.
        """
        name = _name(server, url)
        try:
            value = await self._catalog.read(partial(sealed.find, kind=KIND, key=name, now_s=self._catalog.now_s()))
        except CatalogError as exc:
            raise UpstreamError(exc.message, hint=exc.hint) from exc
        if value is None:
            return None, None
        try:
            data = open_sealed(self._key(), value.box, _purpose(server, url))
            return msgspec.json.decode(data, type=SignIn), value.stamp
        except ConfigError as exc:
            raise UpstreamAuthError(exc.message, hint=exc.hint) from exc
        except (SealBrokenError, msgspec.MsgspecError) as exc:
            raise UpstreamAuthError(
                f"The stored sign-in at server '{server}' cannot be used: {exc}.",
                hint=f"Give every gateway the same MCPPROXY_SECRET_KEY. {login_hint(server)}",
            ) from exc

    async def write(self, server: str, url: str, sign_in: SignIn) -> str | None:
        """Stores a sign-in in place of the last one; returns its stamp.

        Raises:
            ConfigError: It cannot be stored.
        """
        box = seal(self._key(), msgspec.json.encode(sign_in), _purpose(server, url))
        value = SealedValue(KIND, _name(server, url), box, uuid.uuid4().hex, None)
        try:
            await self._catalog.write(partial(sealed.store, value=value), is_ordered=False)
        except CatalogError as exc:
            raise ConfigError(f"The sign-in at server '{server}' cannot be stored. {exc}", hint=exc.hint) from exc
        return value.stamp

    async def remove(self, server: str, url: str) -> bool:
        """Whether there was a sign-in to forget.

        Raises:
            ConfigError: The store fails.
        """
        try:
            return await self._catalog.write(partial(sealed.drop, kind=KIND, key=_name(server, url)), is_ordered=False)
        except CatalogError as exc:
            raise ConfigError(f"The sign-in at server '{server}' cannot be forgotten. {exc}", hint=exc.hint) from exc

    @asynccontextmanager
    async def hold_lock(self, server: str, url: str) -> AsyncIterator[None]:
        """Lets one at a time change this sign-in, among all gateways: refresh tokens work once.

        Raises:
            ConfigError: The lease cannot be had.
        """
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(turn(self._catalog, f"{KIND} {_name(server, url)}"))
            except TimeoutError:
                raise ConfigError(
                    f"Another gateway has held the sign-in at server '{server}' for {GIVE_UP_S:g} s.", hint="Stop it."
                ) from None
            except CatalogError as exc:
                raise ConfigError(f"The sign-in at server '{server}' cannot be used. {exc}", hint=exc.hint) from exc
            yield

    def _key(self) -> bytes:
        if self._secret is None:
            raise _no_key("")
        return self._secret


def sign_in_store(catalog: Catalog, settings: Settings) -> SharedSignIns | None:
    """The store of sign-ins that the gateways on this catalog share; None for files of their own."""
    return SharedSignIns(catalog, SecretKey.of(settings)) if catalog.is_shared else None


@asynccontextmanager
async def open_sign_ins(settings: Settings, tls: TlsContext) -> AsyncIterator[SignIns]:
    """The sign-ins of these settings' gateways, for a command that is none of them.

    Raises:
        ConfigError: The gateways' database cannot be used.
    """
    if settings.database_url is None:
        yield SignIns(settings.data_dir, tls=tls)
        return
    async with open_catalog(settings, reset=False) as catalog:
        store = sign_in_store(catalog, settings)
        yield SignIns(settings.data_dir, store=store, now=catalog.now_s, tls=tls)


async def copy_sign_ins(source: Settings, target: Settings, servers: Iterable[ServerConfig]) -> list[str]:
    """Copy the sign-ins at these servers, encrypted anew; returns the servers they are at.

    Args:
        source: Of a gateway.
        target: Of another one.
        servers: Configured servers, expanded.

    Raises:
        UpstreamAuthError: A sign-in cannot be read.
        ConfigError: One cannot be stored, or a store cannot be used.
    """
    tls = TlsContext()
    copied = []
    async with open_sign_ins(source, tls) as ours, open_sign_ins(target, tls) as theirs:
        for config in servers:
            if not config.can_use_oauth:
                continue
            sign_in, _ = await ours.store.read(config.name, config.url)
            if sign_in is not None:
                await theirs.store.write(config.name, config.url, sign_in)
                copied.append(config.name)
    return copied


def require_secret_key(settings: Settings, servers: Iterable[ServerConfig]) -> None:
    """Passes if sign-ins can be kept, or nobody needs one.

    Raises:
        ConfigError: A server or the gateway itself needs sign-ins, gateways share them, and there is no key.
    """
    if settings.database_url is None or settings.secret_key is not None:
        return
    for config in servers:
        if config.oauth is not None:
            raise _no_key(f"Server '{config.name}' needs a sign-in. ")
    if settings.oidc_url is not None:
        raise _no_key("MCPPROXY_OIDC_URL lets people sign in. ")


def _no_key(why: str) -> ConfigError:
    return ConfigError(
        f"{why}Sign-ins are kept in the database of MCPPROXY_DATABASE_URL, and there is no key to encrypt them with.",
        hint="Set MCPPROXY_SECRET_KEY (or _FILE) to the same 32 or more random characters on every gateway.",
    )


def _name(server: str, url: str) -> str:
    return hashlib.sha256(_purpose(server, url)).hexdigest()


def _purpose(server: str, url: str) -> bytes:
    """Associated data of a stored sign-in: one that is moved to another server cannot be opened there."""
    return json.dumps([KIND, server, url]).encode()
