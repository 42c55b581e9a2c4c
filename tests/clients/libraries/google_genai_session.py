"""Google's SDK for Gemini: a session with a server as a tool, before a model on loopback that asks for one call."""

import asyncio
import json
import threading
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google import genai
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from story import live, target

TARGET = target()


class Model(BaseHTTPRequestHandler):
    """Answers what is wanted of it, then a word; keeps what it was sent."""

    wanted: dict[str, Any] | None = None
    asked: dict[str, Any]

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        Model.asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        part = {"functionCall": Model.wanted} if Model.wanted else {"text": "done"}
        Model.wanted = None
        content = {"role": "model", "parts": [part]}
        body = json.dumps({"candidates": [{"content": content, "finishReason": "STOP"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


async def main() -> None:
    web = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    client = genai.Client(api_key="none", http_options={"base_url": f"http://127.0.0.1:{web.server_port}"})
    async with AsyncExitStack() as stack:
        way = streamable_http_client(**TARGET) if "url" in TARGET else stdio_client(StdioServerParameters(**TARGET))
        streams = await stack.enter_async_context(way)
        session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
        await session.initialize()

        async def ask(wanted: dict[str, Any] | None) -> dict[str, Any]:
            Model.wanted = wanted
            await client.aio.models.generate_content(model="m", contents="hi", config={"tools": [session]})
            return Model.asked

        async def call(name: str, arguments: dict[str, Any]) -> str:
            asked = await ask({"name": name, "args": arguments})
            return json.dumps(asked["contents"][-1]["parts"][0]["functionResponse"])

        shown = (await ask(None))["tools"][0]["functionDeclarations"]
        await live([each["name"] for each in shown], call)


asyncio.run(main())
