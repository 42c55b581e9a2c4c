"""A model server on loopback that follows a script, so that a real agent can be driven without a login.

It speaks the four APIs that agents use: Anthropic Messages, OpenAI Responses, OpenAI Chat Completions, Gemini.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

DONE = "SCRIPT DONE"
"""The text of the model's last answer."""


MOST_CALLS = 60
"""A script that gets no further ends."""


class Step(NamedTuple):
    """One tool call of the script, repeated until its result holds a text.

    `tool` is the end of the tool's name, since agents put a prefix before it. While none is offered, `meanwhile` is
    called, since agents take up a new list beside their model's turns, each in its own time.
    """

    tool: str
    arguments: Mapping[str, Any]
    until: str
    meanwhile: "Step | None" = None


class Turn(NamedTuple):
    """One request of the agent: the tools it offered to the model, and the results it had so far."""

    tools: list[str]
    results: list[str]


@dataclass
class ScriptedModel:
    """Answers each request with the script's next call, then with `DONE`."""

    script: Sequence[Step]
    turns: list[Turn] = field(default_factory=list)
    url: str = ""

    def decide(self, tools: list[str], results: list[str]) -> tuple[str, Step] | None:
        """The name under which the agent offers the next step's tool, and the step; None where there is none."""
        if not tools:
            return None
        self.turns.append(Turn(tools, results))
        done = 0
        for result in results:
            done += done < len(self.script) and self.script[done].until in result
        if done == len(self.script) or len(results) == MOST_CALLS:
            return None
        step: Step | None = self.script[done]
        while step is not None:
            if (name := next((tool for tool in tools if tool.endswith(step.tool)), None)) is not None:
                return name, step
            step = step.meanwhile
        return None


@contextmanager
def serving_model(script: Sequence[Step]) -> Iterator[ScriptedModel]:
    """A model that listens on a free port of loopback for as long as the block runs."""
    model = ScriptedModel(script)
    handler = type("Handler", (_Handler,), {"model": model})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        model.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ScriptedModel

    def log_message(self, *_: Any) -> None:
        """Keep the test's output quiet."""

    def do_GET(self) -> None:
        self._send(b'{"data":[],"models":[],"object":"list"}')

    def do_HEAD(self) -> None:
        self._send(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        request = json.loads(body) if body.startswith(b"{") else {}
        path = self.path.split("?")[0]
        if path.endswith("/messages"):
            self._anthropic(request)
        elif path.endswith("/responses"):
            self._responses(request)
        elif path.endswith("/chat/completions"):
            self._chat(request)
        elif "enerateContent" in path:
            self._gemini(request, is_stream="stream" in path)
        else:
            self._send(b'{"input_tokens":10,"totalTokens":10}')

    def _send(self, body: bytes, content_type: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_events(self, events: Sequence[Mapping[str, Any]], end: bytes = b"") -> None:
        lines = []
        for event in events:
            if "type" in event:
                lines.append(b"event: %s\n" % event["type"].encode())
            lines.append(b"data: %s\n\n" % json.dumps(event).encode())
        self._send(b"".join(lines) + end, "text/event-stream")

    def _anthropic(self, request: Mapping[str, Any]) -> None:
        blocks = [
            block
            for message in request.get("messages", ())
            if isinstance(message["content"], list)
            for block in message["content"]
        ]
        results = [json.dumps(block.get("content")) for block in blocks if block.get("type") == "tool_result"]
        decided = self.model.decide([tool["name"] for tool in request.get("tools") or ()], results)
        block: dict[str, Any] = {"type": "text", "text": DONE}
        delta: dict[str, Any] = {"type": "text_delta", "text": DONE}
        if decided is not None:
            name, step = decided
            block = {"type": "tool_use", "id": f"toolu_{len(results)}", "name": name, "input": step.arguments}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(step.arguments)}
        stop = "end_turn" if decided is None else "tool_use"
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request.get("model", "scripted")}
        usage = {"input_tokens": 10, "output_tokens": 5}
        if not request.get("stream"):
            whole = {**message, "content": [block], "stop_reason": stop, "stop_sequence": None, "usage": usage}
            self._send(json.dumps(whole).encode())
            return
        empty = {**block, "input": {}} if decided is not None else {**block, "text": ""}
        begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        self._send_events(
            [
                {"type": "message_start", "message": begun},
                {"type": "content_block_start", "index": 0, "content_block": empty},
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
                {"type": "message_stop"},
            ]
        )

    def _responses(self, request: Mapping[str, Any]) -> None:
        namespaces = {}
        for tool in request.get("tools") or ():
            if tool.get("type") == "namespace":
                namespaces |= {inner["name"]: tool.get("name") for inner in tool.get("tools", ())}
            else:
                namespaces[tool.get("name") or tool.get("type")] = None
        given = request.get("input")
        items = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
        outputs = [item for item in items if item.get("type") in {"function_call_output", "custom_tool_call_output"}]
        decided = self.model.decide(list(namespaces), [json.dumps(item.get("output")) for item in outputs])
        item: dict[str, Any] = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
        item["content"] = [{"type": "output_text", "text": DONE, "annotations": []}]
        if decided is not None:
            name, step = decided
            item = {"type": "function_call", "id": f"fc_{len(outputs)}", "call_id": f"call_{len(outputs)}"}
            item |= {"name": name, "arguments": json.dumps(step.arguments), "status": "completed"}
            if namespaces[name] is not None:
                item["namespace"] = namespaces[name]
        usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5}
        usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15}
        whole = {"id": "resp_1", "status": "completed", "output": [item], "usage": usage}
        self._send_events(
            [
                {"type": "response.created", "response": {"id": "resp_1"}},
                {"type": "response.output_item.added", "output_index": 0, "item": item},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": whole},
            ]
        )

    def _chat(self, request: Mapping[str, Any]) -> None:
        results = [json.dumps(each.get("content")) for each in request.get("messages", ()) if each["role"] == "tool"]
        decided = self.model.decide([tool["function"]["name"] for tool in request.get("tools") or ()], results)
        message: dict[str, Any] = {"role": "assistant", "content": DONE}
        if decided is not None:
            name, step = decided
            function = {"name": name, "arguments": json.dumps(step.arguments)}
            call = {"index": 0, "id": f"call_{len(results)}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        finish = "stop" if decided is None else "tool_calls"
        base = {"id": "c1", "created": 1, "model": request.get("model")}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            self._send(json.dumps({**base, "object": "chat.completion", "choices": [choice], "usage": usage}).encode())
            return
        chunk = {**base, "object": "chat.completion.chunk"}
        events = [
            {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage},
        ]
        self._send_events(events, end=b"data: [DONE]\n\n")

    def _gemini(self, request: Mapping[str, Any], *, is_stream: bool) -> None:
        tools = [each["name"] for tool in request.get("tools") or () for each in tool.get("functionDeclarations", ())]
        parts = [part for content in request.get("contents", ()) for part in content.get("parts", ())]
        results = [json.dumps(part["functionResponse"]) for part in parts if "functionResponse" in part]
        decided = self.model.decide(tools, results)
        part: dict[str, Any] = {"text": DONE if tools else _SPEAKER}
        if decided is not None:
            name, step = decided
            part = {"functionCall": {"name": name, "args": step.arguments}}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
        answer = json.dumps({"candidates": [candidate], "usageMetadata": usage}).encode()
        if is_stream:
            self._send(b"data: %s\n\n" % answer, "text/event-stream")
        else:
            self._send(answer)


_SPEAKER = json.dumps(
    {
        "reasoning": "x",
        "next_speaker": "user",
        "complexity_score": 1,
        "complexity_reasoning": "x",
        "model_choice": "flash",
    }
)
"""The answer to the questions that Gemini CLI asks its model beside the conversation."""
