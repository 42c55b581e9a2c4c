"""A service that speaks like OpenAI's embeddings API, and answers what a test tells it to."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

DIMENSION = 4


def replace_file(file: Path, content: str | bytes) -> None:
    """Puts a file of one's own where a link was."""
    file.unlink()
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def vector_of(text: str) -> list[float]:
    """A vector that depends on the text and is not of unit length."""
    return [len(text) + 1.0, float(text.count("a")), 2.0, 0.5]


def rows_of(texts: Sequence[str]) -> list[dict[str, Any]]:
    """What a good service answers for some texts."""
    return [{"object": "embedding", "index": at, "embedding": vector_of(text)} for at, text in enumerate(texts)]


@dataclass
class Reply:
    """One answer: a status, a body (JSON unless it is bytes) and more headers."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


Answer = Callable[[Sequence[str]], Reply]


def with_rows(make: Callable[[Sequence[str]], Any]) -> Answer:
    """An answer of status 200 with these rows for `data`."""
    return lambda texts: Reply(body={"object": "list", "model": "m", "data": make(texts)})


good = with_rows(rows_of)


def failing(status: int, code: str | None = None, **headers: str) -> Answer:
    """An error as OpenAI words it; it repeats the key, as some services do."""
    body = {"error": {"message": "Incorrect API key provided: sk-secret", "type": "t", "param": None, "code": code}}
    return lambda texts: Reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


@dataclass
class Request:
    """What the service was asked."""

    path: str
    authorization: str
    body: dict[str, Any]


class EmbeddingService:
    """Answers each request with the next of `answers`, and well when there are no more.

    Attributes:
        answers: What comes next.
        requests: What came.
        may_answer: Requests wait for it; set from the start.
    """

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[Request] = []
        self.may_answer = Event()
        self.may_answer.set()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                service.handle(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = json.loads(request.rfile.read(int(request.headers["content-length"])))
        self.requests.append(Request(request.path, request.headers["authorization"], body))
        answer = self.answers.pop(0) if self.answers else good
        reply = answer(body["input"])
        self.may_answer.wait()
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        try:
            request.send_response(reply.status)
            for name, value in {"content-type": "application/json", **reply.headers}.items():
                request.send_header(name, value)
            request.send_header("content-length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)
        except ConnectionError:
            pass  # who asked has gone
