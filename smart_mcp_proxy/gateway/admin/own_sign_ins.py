"""Sign-ins of one person at the servers where each has their own, for nobody but that person."""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
from anyio import to_thread

from smart_mcp_proxy.errors import ConfigError, ServerNotFoundError, UpstreamAuthError
from smart_mcp_proxy.gateway.activity.access import build_access_activity
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.models import Principal
from smart_mcp_proxy.names import login_hint
from smart_mcp_proxy.servers import ServerConfig, expand
from smart_mcp_proxy.telemetry import Activity
from smart_mcp_proxy.upstream import SignedOut, SignIns


class OwnSignIn(msgspec.Struct, frozen=True):
    """State of a person's sign-in at one server.

    Attributes:
        server: Configured name.
        state: none, signed_in, or ended where only a new sign-in helps.
        since_s: When the person signed in, in seconds since the epoch.
        scopes: What was granted, as far as is known.
        url: Where they sign in; empty where the gateway has no page for that.
        hint: What to do where they are not signed in.
    """

    server: str
    state: Literal["none", "signed_in", "ended"]
    since_s: float | None = None
    scopes: tuple[str, ...] = ()
    url: str = ""
    hint: str = ""


class OwnSignIns(msgspec.Struct, frozen=True, eq=False):
    """Shows each person their own sign-ins, and forgets one when they ask for it.

    Attributes:
        sign_ins: Of all people.
        views: Say which servers a person reaches.
        environ: What placeholders in entries expand from.
        record: Takes activity records.
    """

    sign_ins: SignIns
    views: Views
    environ: Mapping[str, str]
    record: Callable[[Activity], None]

    async def list(self, who: Principal) -> list[OwnSignIn]:
        """List the servers at which this person signs in, each with how that stands.

        Raises:
            UpstreamError: The store of sign-ins fails.
        """
        servers = self._find_servers(who).values()
        return [await look_up(self.sign_ins, config, self.environ, who.id) for config in servers]

    async def forget(self, name: str, who: Principal) -> SignedOut:
        """Give a person's sign-in at a server back where that is offered, and forget it.

        Raises:
            ServerNotFoundError: They sign in to no server of that name.
            ConfigError: Its entry cannot be used, or the store fails.
        """
        config = self._find_servers(who).get(name)
        if config is None:
            raise ServerNotFoundError(f"You sign in to no server named {name[:100]!r}.", hint="List your sign-ins.")
        done = await self.sign_ins.sign_out(await _expand(config, self.environ, who.id))
        if done.was_signed_in:
            self.record(build_access_activity("signed out", who.id, name, server=name))
        return done

    def _find_servers(self, who: Principal) -> dict[str, ServerConfig]:
        view = self.views.at("", self.views.reach(who))
        servers = {} if view is None else view.servers
        return {
            name: config
            for name, config in sorted(servers.items())
            if config.is_personal and not config.is_off and not (config.oauth or {}).get("exchange")
        }


async def look_up(sign_ins: SignIns, config: ServerConfig, environ: Mapping[str, str], person: str) -> OwnSignIn:
    """Look up how a person's sign-in at a server stands; where all have one together, how that does.

    Raises:
        UpstreamError: The store of sign-ins fails.
    """
    try:
        config = await _expand(config, environ, person)
        held, _ = await sign_ins.store.read(*config.sign_in_place)
    except (ConfigError, UpstreamAuthError) as exc:  # its entry, or what is stored, cannot be used
        return OwnSignIn(config.name, "ended", hint=f"{exc.message} {exc.hint}".rstrip())
    url = sign_ins.build_link(config)
    if held is None or not sign_ins.is_usable(held):
        hint = sign_ins.build_person_hint(config) or login_hint(config.name)
        return OwnSignIn(config.name, "none" if held is None else "ended", url=url, hint=hint)
    return OwnSignIn(config.name, "signed_in", held.since_s or held.obtained_at_s, tuple(held.scope.split()), url)


async def _expand(config: ServerConfig, environ: Mapping[str, str], person: str) -> ServerConfig:
    expanded = await to_thread.run_sync(expand, config, environ)
    return msgspec.structs.replace(expanded, person=person) if config.is_personal else expanded
