"""Variables that are harmless to pass on, and those that a gateway in the background starts with."""

from collections.abc import Mapping
from typing import Final

PLAIN: Final = frozenset({
    "HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER", "TZ", "NVM_DIR",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
    "NO_PROXY", "no_proxy",
    "UV_CACHE_DIR", "UV_NO_CACHE", "UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_OFFLINE", "UV_PYTHON",
    "UV_PYTHON_DOWNLOADS", "UV_PYTHON_INSTALL_DIR", "UV_PYTHON_PREFERENCE", "UV_MANAGED_PYTHON", "UV_NO_MANAGED_PYTHON",
    "UV_NO_INDEX", "UV_TOOL_DIR",
    "PIP_CACHE_DIR", "PIP_CERT", "PIP_NO_CACHE_DIR", "PIP_NO_INDEX", "PIP_PYTHON", "PIP_TRUSTED_HOST",
})  # fmt: skip
"""Passed on as they are; `LC_*` and `XDG_*` are, too. They hold paths, names and switches, none of our tokens."""
ADDRESSES: Final = frozenset({
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy",
    "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX", "UV_INDEX_URL", "UV_PYTHON_INSTALL_MIRROR",
    "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_PROXY",
})  # fmt: skip
"""Variables with the addresses of proxies and package indexes."""
_OWN: Final = ("DBUS_SESSION_BUS_ADDRESS", "VIRTUAL_ENV", "MALLOC_ARENA_MAX")
_OWN_PREFIXES: Final = ("MCPPROXY_", "OPENAI_", "HF_", "OTEL_", "PYTHON", "LC_", "XDG_", "npm_config_", "NPM_CONFIG_")


def select_own(environ: Mapping[str, str]) -> dict[str, str]:
    """Select what the gateway itself reads, and what servers get without their entry naming it."""
    return {
        name: text
        for name, text in environ.items()
        if name in PLAIN or name in ADDRESSES or name in _OWN or name.startswith(_OWN_PREFIXES)
    }
