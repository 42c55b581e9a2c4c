"""Where the gateway listens: also on machines with one kind of address only."""

import socket
from contextlib import closing
from typing import Any

import pytest

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.web.listening import bind

IPV4, IPV6 = "127.0.0.1", "::1"


@pytest.mark.parametrize(
    ("addresses", "used"), [([IPV6], IPV6), ([IPV6, IPV4], IPV4), ([IPV4], IPV4)], ids=["ipv6", "both", "ipv4"]
)
def test_a_name_is_listened_to_at_an_address_that_it_has(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str], used: str
) -> None:
    """F63: where `localhost` is `::1` alone, the gateway starts there."""
    resolve = socket.getaddrinfo

    def resolved(host: str, port: int, *args: Any, **more: Any) -> list[Any]:
        of = addresses if host == "localhost" else [host]
        return [found for address in of for found in resolve(address, port, *args, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with closing(bind("localhost", 0)) as listener:
        assert listener.getsockname()[0] == used
        with socket.create_connection((used, listener.getsockname()[1]), timeout=5):
            pass


@pytest.mark.parametrize(("host", "shown"), [(IPV6, IPV6), ("::", "::"), ("0.0.0.0", "0.0.0.0"), ("", "0.0.0.0")])
def test_an_address_is_taken_as_it_is(host: str, shown: str) -> None:
    """Nothing is asked of a resolver."""
    with closing(bind(host, 0)) as listener:
        assert listener.getsockname()[0] == shown


def test_a_name_that_is_nobodys_is_named() -> None:
    """With the setting to change."""
    with pytest.raises(ConfigError, match=r"MCPPROXY_HOST is 'nowhere\.invalid'") as caught:
        bind("nowhere.invalid", 0)
    assert "127.0.0.1" in caught.value.hint


def test_a_port_that_is_taken_is_named() -> None:
    """B65: with what to do."""
    with closing(bind(IPV4, 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} on {IPV4} cannot be used") as caught:
            bind(IPV4, port)
    assert "MCPPROXY_PORT" in caught.value.hint
