"""A service that speaks like OpenAI's embeddings API, and answers what a test tells it to."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal, Self

DIMENSION = 4
DRIP_S = 0.02
"""Between two bytes of an answer that never ends."""


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
    """One answer: a status, a body (JSON unless it is bytes) and more headers.

    Attributes:
        drips_from: Behind this part of the answer comes a byte now and then, and no end.
    """

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    drips_from: Literal["", "status", "headers"] = ""


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
    """Answers each request with the next of `answers`, and as usual when there are no more.

    Attributes:
        answers: What comes next.
        usual: What comes then; well, unless a test wants it otherwise.
        requests: What came.
        may_answer: Requests wait for it; set from the start.
        was_left: Set when who asked has closed a connection on which an answer dripped.
    """

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.usual: Answer = good
        self.requests: list[Request] = []
        self.may_answer = Event()
        self.may_answer.set()
        self.was_left = Event()
        self._is_over = Event()
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
        self._is_over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = json.loads(request.rfile.read(int(request.headers["content-length"])))
        self.requests.append(Request(request.path, request.headers["authorization"], body))
        answer = self.answers.pop(0) if self.answers else self.usual
        reply = answer(body["input"])
        self.may_answer.wait()
        if reply.drips_from:
            self._drip(request, reply)
            return
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

    def _drip(self, request: BaseHTTPRequestHandler, reply: Reply) -> None:
        start = b"HTTP/1.1 200 OK\r\n"
        if reply.drips_from == "headers":
            start += b"content-type: application/json\r\ncontent-length: 100000\r\n\r\n"
        else:
            start += b"x-long: "
        try:
            request.wfile.write(start)
            while not self._is_over.wait(DRIP_S):
                request.wfile.write(b" ")
        except ConnectionError:
            self.was_left.set()
