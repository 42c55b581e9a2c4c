"""Checks of settings that hold addresses, users or secrets."""

import re
from ipaddress import ip_network
from urllib.parse import urlsplit

from pydantic import SecretStr

from smart_mcp_proxy.models import ROLES

DATABASE_SCHEMES = ("postgresql", "postgres")
"""Schemes of the catalog's stores."""

_ORIGIN = r"https?://[a-z0-9.\-\[\]:]+"
"""As browsers write it: scheme, host, a port that is not the usual one; no path."""
_USER = r"[^\s=,]{1,300}(?:=(?:read|write|destructive))?"
"""Somebody who signs in, and what is allowed to them."""
_GROUP_ROLE = rf"[^,]{{1,300}}=(?:{'|'.join(ROLES)})"
"""A group of the identity provider, and the role of its people."""
QUOTA_TIMES_S = {"minute": 60, "hour": 3_600, "day": 86_400}
_QUOTA = rf"[1-9][0-9]{{0,8}}/(?:{'|'.join(QUOTA_TIMES_S)})"
"""Calls in a time."""
BEARER = r"[!-~]+"
"""Text that fits an Authorization header after `Bearer `: visible ASCII without spaces."""


def bearer_only(token: SecretStr) -> SecretStr:
    """Refuse what no Authorization header holds."""
    if not re.fullmatch(BEARER, token.get_secret_value()):
        raise ValueError("not a bearer token")
    return token


def is_url(text: str) -> str:
    """Refuse anything but an http or https address without a user, query or fragment."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError("not an address")
    return text


def is_database(url: SecretStr) -> SecretStr:
    """Refuse what is no address of a store."""
    scheme = url.get_secret_value().partition("://")[0]
    parts = urlsplit(url.get_secret_value())
    # Reading the port raises where it is none. Several hosts with their ports are libpq's to read.
    if (
        scheme not in DATABASE_SCHEMES  # libpq knows them in small letters only
        or "@" in parts.path  # maybe of a password: libpq would take what follows the first for the host
        or parts.netloc.count("@") > 1
        or not parts.path.strip("/")
        or ("," not in parts.netloc and parts.port == 0)
    ):
        raise ValueError("not a database")
    return url


def are_origins(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse anything but whole origins: a pattern would let in pages that nobody has thought of."""
    if not all(re.fullmatch(_ORIGIN, text) for text in texts):
        raise ValueError("not an origin")
    return texts


def are_networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse anything but IP addresses and networks; a network of all would let anybody pose as anybody."""
    if not all(ip_network(text).prefixlen for text in texts):
        raise ValueError("all addresses")
    return texts


def are_users(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what names nobody who could sign in."""
    if not all(re.fullmatch(_USER, text) for text in texts):
        raise ValueError("not users")
    return texts


def is_quota(text: str) -> str:
    """Refuse what is no number of calls in a time."""
    if not re.fullmatch(_QUOTA, text):
        raise ValueError("not a quota")
    return text


def are_group_quotas(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what gives no group a quota, or one group two."""
    groups = [text.rpartition("=")[0] for text in texts]
    if not all(groups) or len(set(groups)) < len(groups):
        raise ValueError("not groups")
    for text in texts:
        is_quota(text.rpartition("=")[2])
    return texts


def are_group_roles(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what gives no group a role that there is."""
    if not all(re.fullmatch(_GROUP_ROLE, text) for text in texts):
        raise ValueError("not roles")
    return texts
