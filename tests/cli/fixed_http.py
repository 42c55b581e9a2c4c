"""An HTTP server that answers everything alike, for commands that run in this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Fixed:
    """The answer, which may be changed at any time.

    Attributes:
        base: Address of the server.
        status: Of every answer.
        headers: Of every answer.
    """

    base: str
    status: int = 404
    headers: dict[str, str] = field(default_factory=dict)


@contextmanager
def answering() -> Iterator[Fixed]:
    """The server on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(fixed.status)
            for name, value in fixed.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        fixed = Fixed(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield fixed
        finally:
            server.shutdown()
            thread.join()
