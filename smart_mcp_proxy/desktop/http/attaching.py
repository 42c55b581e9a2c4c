"""`mcpproxy attach` by what its words and variables say alone, before the command line is loaded."""

import sys
from collections.abc import Mapping

from smart_mcp_proxy.desktop.http.address import read_address, read_token, split_header, takes_token
from smart_mcp_proxy.desktop.http.door import HttpDoor

_PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY")


def attach_early(words: list[str], environ: Mapping[str, str]) -> int | None:
    """Carry messages between stdio and a gateway over HTTP.

    Args:
        words: The command line, which begins with `attach`.
        environ: The environment.

    Returns:
        The exit status; None where the command itself has to read them, because they are not plain or wrong, or
        name a proxy.
    """
    headers, urls, rest = dict[str, str](), list[str](), words[1:]
    while rest:
        word = rest.pop(0)
        if word == "--header" and rest and (header := split_header(rest.pop(0))) is not None:
            headers[header[0]] = header[1]
        elif not word.startswith("-"):
            urls.append(word)
        else:
            return None
    is_plain = all(word.isascii() and word.isprintable() for word in words)
    if not is_plain or len(urls) != 1 or " " in urls[0] or "@" in urls[0].partition("?")[0] or sys.stdin.isatty():
        return None
    try:
        address = read_address(urls[0], headers)
        if takes_token(address) and (token := read_token(environ)):
            address.headers["authorization"] = f"Bearer {token}"
        if not address.is_on_this_machine and any(environ.get(name) for name in _PROXIES):
            return None
    except (OSError, ValueError):
        return None
    return HttpDoor(address).run()
