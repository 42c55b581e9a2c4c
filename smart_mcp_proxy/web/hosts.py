"""Under which names the gateway may be reached: one answer for `/mcp`, the broker and REST."""

from urllib.parse import urlsplit

from smart_mcp_proxy.settings import Settings

__all__ = ["allowed_hosts"]


def allowed_hosts(settings: Settings) -> tuple[str, ...]:
    """The names in a Host header that are answered to besides loopback: the settings' own and the public address's."""
    public = urlsplit(settings.public_url).hostname if settings.public_url is not None else None
    return (*settings.allowed_hosts, public) if public else settings.allowed_hosts
