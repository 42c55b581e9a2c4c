"""Proxy loop detection: the gateways in front of this one and behind it.

Behind it: a gateway says in its capabilities who it is, and who is behind it. In front of it: a child process finds in
its environment the gateways that it runs under.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from smart_mcp_proxy.desktop.alone import STARTED_BY
from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.names import GATEWAYS_CAPABILITY
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream.protocol.base_session import OpenSession, UpstreamSession

_MOST_NESTED: Final = 8
"""Gateways below gateways; nobody means more, and each is a process with servers of its own."""
_MOST_KNOWN: Final = 64
_INSTANCE: Final = re.compile("[0-9a-f]{16}")


def mark_environment(environ: Mapping[str, str], config_file: Path | None) -> dict[str, str]:
    """Environment for child servers, with the gateway-loop marker.

    A gateway that runs under one with the same configuration file takes that one's identity: it is the same again.

    Args:
        environ: That this gateway was started with.
        config_file: That names its servers, None if there is none.
    """
    above = environ.get(STARTED_BY, "").split()
    file_id = hashlib.sha256(os.fsencode(config_file.resolve())).hexdigest()[:16] if config_file else ""
    again = (entry for entry in above if file_id and entry.endswith(f":{file_id}"))
    own = next(again, f"{secrets.token_hex(8)}:{file_id}")
    return {**environ, STARTED_BY: " ".join([*above, own])}


def gateways_behind(capabilities: Mapping[str, Any]) -> frozenset[str]:
    """The gateways that a server with these capabilities is, or leads to; empty for any other server."""
    declared = capabilities.get("experimental")
    facts = declared.get(GATEWAYS_CAPABILITY) if isinstance(declared, Mapping) else None
    ids = facts.get("ids") if isinstance(facts, Mapping) else None
    known = ids[:_MOST_KNOWN] if isinstance(ids, list) else ()
    return frozenset(one for one in known if isinstance(one, str) and _INSTANCE.fullmatch(one))


class Lineage:
    """Position of a gateway in the chain: the gateways in front of it and behind it.

    Args:
        environ: Of its servers, see `mark_environment`; without a mark it is a gateway that nobody started.

    Attributes:
        instance: Random, the same for as long as the gateway runs.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        *above, own = environ.get(STARTED_BY, "").split() or [secrets.token_hex(8)]
        self.instance = own.partition(":")[0]
        self._above = tuple(entry.partition(":")[0] for entry in above)

    def __repr__(self) -> str:
        return f"<Lineage {self.instance}, {len(self._above)} above>"

    def list_gateway_ids(self, servers: Iterable[Mapping[str, Any]]) -> list[str]:
        """This gateway, then those behind it, out of the capabilities of its servers."""
        behind = frozenset().union(*map(gateways_behind, servers)) - {self.instance}
        return [self.instance, *sorted(behind)][:_MOST_KNOWN]

    async def open(self, open_session: OpenSession, config: ServerConfig, **options: Any) -> UpstreamSession:
        """A session with a server that does not lead back here; see `OpenSession`.

        Raises:
            UpstreamError: It does, or the session cannot be had.
        """
        self._check_nesting(config.name)
        session = await open_session(config, **options)
        behind = gateways_behind(session.capabilities)
        if behind.isdisjoint((self.instance, *self._above)):
            return session
        await session.close()
        raise UpstreamError(
            f"Server '{config.name}' leads back to this gateway, so every call of its tools could go round in circles.",
            hint=f"Take '{config.name}' out of this gateway's configuration, or this gateway out of the other's; one "
            f"that is started as a child needs a configuration file of its own, or {STARTED_BY} unset.",
        )

    def _check_nesting(self, server: str) -> None:
        if self.instance in self._above:
            raise UpstreamError(
                f"Server '{server}' is not started: this gateway was started by one with the same configuration file.",
                hint="Take the server that starts this gateway out of that file, or give it one of its own with "
                f"MCPPROXY_CONFIG_PATH in its 'env'. In a shell that one of your servers opened: unset {STARTED_BY}.",
            )
        if len(self._above) >= _MOST_NESTED:
            raise UpstreamError(
                f"Server '{server}' is not started: this gateway runs under {len(self._above)} others already, and at "
                f"most {_MOST_NESTED} are accepted.",
                hint="Configure the server in one of the gateways above.",
            )
