"""HTTP clients for servers on loopback, which speak no TLS."""

import ssl
from typing import Any

import httpx2

__all__ = ["TRUSTS_NOBODY", "plain_client"]

TRUSTS_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For all clients: to read the system's certificates takes each of them 50 ms, and no test here meets one."""


def plain_client(**given: Any) -> httpx2.AsyncClient:
    """A client that takes nothing from the environment."""
    return httpx2.AsyncClient(trust_env=False, verify=TRUSTS_NOBODY, **given)
