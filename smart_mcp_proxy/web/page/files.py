"""Style sheet and scripts of the page, read once and kept by browsers as long as they are the same."""

import hashlib
from importlib.resources import files
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from smart_mcp_proxy.web.page.rendering import HEADERS

_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class _File(NamedTuple):
    content: bytes
    etag: str
    media_type: str


class PageFiles:
    """The files beside the templates; whoever may connect may read them, they say nothing of this gateway."""

    def __init__(self) -> None:
        folder = files("smart_mcp_proxy.web.page") / "static"
        self._files: dict[str, _File] = {}
        for file in folder.iterdir():
            media_type = _TYPES.get(file.name[file.name.rfind(".") :])
            if media_type is not None:
                content = file.read_bytes()
                etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
                self._files[file.name] = _File(content, etag, media_type)

    def __repr__(self) -> str:
        return f"<PageFiles, {len(self._files)} of them>"

    async def answer(self, request: Request) -> Response:
        """Answer with a file, or with 304 if the browser has it already."""
        found = self._files.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        headers = {**HEADERS, "etag": found.etag, "cache-control": "no-cache"}
        known = request.headers.get("if-none-match", "").split(",")
        if found.etag in (each.strip() for each in known):
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)
