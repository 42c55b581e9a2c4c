"""Addresses in a definition that no honest one needs."""

import ipaddress
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence
from smart_mcp_proxy.policy.scanner.wording import Reading

SUSPECT_WEIGHT, ODD_WEIGHT = 1.0, 0.6
_URL = re.compile(r"\b(?:https?|wss?|ftp)://[^\s'\"<>`)\]\\]{3,400}")
_ACTIVE = re.compile(
    r"\b(?:javascript|vbscript):\s*\S|\bdata:(?:text/html|text/javascript|application/(?:javascript|x-sh|xhtml))"
)
_DROPS = re.compile(
    r"(?:^|\.)(?:ngrok(?:-free)?\.(?:io|app|dev)|trycloudflare\.com|loca\.lt|serveo\.net|webhook\.site|requestbin\.\w+|"
    r"pipedream\.net|beeceptor\.com|interact\.sh|oast\.\w+|oastify\.com|burpcollaborator\.net|dnslog\.cn|"
    r"requestcatcher\.com|"
    r"transfer\.sh|file\.io|pastebin\.com|hookbin\.com|canarytokens\.com|smtp2go\.com|duckdns\.org|onion)$"
)
"""Places where anybody can pick up what is sent there. Not `localhost.run` and the like, which only lead home."""
_DROP_PATHS = (
    "discord.com/api/webhooks",
    "discordapp.com/api/webhooks",
    "api.telegram.org/bot",
    "hooks.slack.com/services",
)
_NAMED = re.compile(r"evil|attack|exfil|malicious|steal|phish|hacker|c2\b|rogue|pwn|collect(?:or)?\b|leak|malware")
_CARRIES = re.compile(
    r"[?&#][\w-]*=?(?:\{|\$\(|\$\{|%7b|<)[^&]*|[?&](?:exfil|leak|stolen|secret|conversation|history|prompt|creds?|"
    r"cookies?|env)="
)


def addresses(reading: Reading) -> Iterator[Evidence]:
    """Evidence of addresses that run something, lead to nobody in particular, or carry data away."""
    text = reading.text
    if ":" not in text:
        return
    if "script:" in text or "data:" in text:
        for match in _ACTIVE.finditer(text):
            yield reading.evidence("address", DECISIVE, match.start(), match.end(), "An address holds a program.")
    if "://" not in text:
        return
    for match in _URL.finditer(text):
        if (judged := _judge(match[0])) is not None:
            weight, reason = judged
            yield reading.evidence("address", weight, match.start(), match.end(), reason)


def _judge(url: str) -> tuple[float, str] | None:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return ODD_WEIGHT, "An address is malformed."
    if _DROPS.search(host) or any(path in url for path in _DROP_PATHS):
        return SUSPECT_WEIGHT, f"'{host}' hands what is sent there to whoever opened it."
    if _NAMED.search(host):
        return SUSPECT_WEIGHT, f"'{host}' names what it is for."
    if _is_public_number(host):
        return SUSPECT_WEIGHT, f"'{host}' is a number instead of a name."
    if "@" in parts.netloc and "{" not in parts.netloc:
        return ODD_WEIGHT, "An address shows one host and leads to another."
    if host.startswith("xn--") or ".xn--" in host:
        return ODD_WEIGHT, f"'{host}' stands for letters that may look like others."
    if _CARRIES.search(url):
        return ODD_WEIGHT, "An address takes data along."
    return None


def _is_public_number(host: str) -> bool:
    if not (host[-1:].isdigit() or ":" in host or host.startswith("0x")):
        return False
    try:
        number = ipaddress.ip_address(int(host, 0) if re.fullmatch(r"0x[0-9a-f]+|\d{8,10}", host) else host)
    except ValueError:
        return False
    return not (number.is_private or number.is_loopback or number.is_unspecified) or str(number).startswith(
        ("192.0.2.", "198.51.100.", "203.0.113.")
    )
