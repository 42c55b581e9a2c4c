"""Templates of the page, and the headers that every answer of it has."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from starlette.responses import HTMLResponse

from smart_mcp_proxy.policy.scanner.findings import escape_unsafe
from smart_mcp_proxy.web.page.hidden import has_hidden, render_rest_text, visible

HEADERS: Final = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    # Not `no-referrer`: with it browsers send the Origin `null` with a form.
    # Source: https://fetch.spec.whatwg.org/#origin-header
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
NAVIGATION: Final = (
    ("/ui/", "Overview", ""),
    ("/ui/waiting", "Needs you", ""),
    ("/ui/search", "Search lab", ""),
    ("/ui/servers", "Servers", "/ui/server"),
    ("/ui/tools", "Tools", "/ui/tool"),
    ("/ui/activity", "Activity", "/ui/record"),
    ("/ui/clients", "Clients", ""),
    ("/ui/settings", "Settings", ""),
)
"""Address and name of each place, and how addresses of single things within it begin."""
_JSON_CHARS: Final = 20_000


class Renderer:
    """Makes pages of templates; everything that is put into one is escaped."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("smart_mcp_proxy.web.page"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "shown": visible,
            "respelled": render_rest_text,
            "spelled": escape_unsafe,
            "pretty": _format_json,
            "moment": _format_moment,
            "count": _format_count,
            "ms": _format_ms,
            "query": _build_query,
        }
        self._environment.globals |= {"navigation": NAVIGATION}

    def page(self, template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
        """A page as it is sent; stored nowhere."""
        text = self._environment.get_template(template).render(**values)
        return HTMLResponse(text, status, headers=HEADERS | {"cache-control": "no-store"})


def _format_json(value: Any, limit: int = _JSON_CHARS) -> Markup:
    """A JSON value on several lines."""
    return visible(_spread(value), limit)


def is_shown_whole(value: Any) -> bool:
    """Whether a JSON value on several lines is neither cut nor has characters that are only counted."""
    text = _spread(value)
    return len(text) <= _JSON_CHARS and not has_hidden(text)


def _spread(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _format_moment(value: str | float | None) -> Markup:
    """A time, in UTC; the browser makes local time of it."""
    if value is None:
        return Markup("never")
    at = datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        at.isoformat(timespec="milliseconds"), at.strftime("%Y-%m-%d %H:%M:%S")
    )


def _format_count(value: float) -> str:
    """A number in three digits or so: 512, 41.2 k, 3.1 M."""
    for unit, size in (("M", 1_000_000), ("k", 10_000)):
        if abs(value) >= size:
            return f"{value / (1_000_000 if unit == 'M' else 1_000):,.1f} {unit}"
    return f"{value:,.0f}"


def _format_ms(value: float) -> str:
    """A duration."""
    return f"{value / 1_000:,.1f} s" if value >= 1_000 else f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def _build_query(words: Mapping[str, Any]) -> str:
    """The query part of a link, without what is empty."""
    return urlencode({key: value for key, value in words.items() if value not in (None, "")}, doseq=True)
