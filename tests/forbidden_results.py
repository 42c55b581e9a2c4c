"""Tool results that the protocol forbids, each with what an agent gets instead."""

from typing import Any

PNG = "iVBORw0KGgoAAAANSUhEUg=="

A: dict[str, Any] = {"type": "text", "text": "a"}
ICON: dict[str, Any] = {"src": "https://e.example/a.png"}
LINK: dict[str, Any] = {"type": "resource_link", "uri": "file:///a", "name": "a"}
SEEN: dict[str, Any] = LINK | {"uri": "mcpproxy://up/file%3A%2F%2F%2Fa"}

READABLE: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "structured alone": ({"structuredContent": {"n": 1}}, [{"type": "text", "text": '{"n":1}'}]),
    "structured beside null": ({"content": None, "structuredContent": {"n": 1}}, [{"type": "text", "text": '{"n":1}'}]),
    "nothing": ({}, []),
    "null": ({"content": None}, []),
    "failure alone": ({"isError": True}, []),
    "text": ({"content": "done"}, [{"type": "text", "text": "done"}]),
    "one block": ({"content": {"type": "text", "text": "done"}}, [{"type": "text", "text": "done"}]),
    "an object": ({"content": {"n": 1}}, [{"type": "text", "text": '{"n":1}'}]),
    "list of texts": (
        {"content": ["a", None, {"text": "b"}]},
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    ),
    "text of an object": ({"content": [{"type": "text", "text": {"n": 1}}]}, [{"type": "text", "text": '{"n":1}'}]),
    "text of a number": ({"content": [{"type": "text", "text": 5}]}, [{"type": "text", "text": "5"}]),
    "null members": (
        {"content": [{"type": "text", "text": "a", "annotations": None, "_meta": None}], "isError": None},
        [{"type": "text", "text": "a"}],
    ),
    "odd annotations": (
        {"content": [{"type": "text", "text": "a", "annotations": {"audience": "all", "priority": 7}}]},
        [{"type": "text", "text": "a"}],
    ),
    "another kind with text": ({"content": [{"type": "markdown", "text": "# a"}]}, [{"type": "text", "text": "# a"}]),
    "image without mimeType": (
        {"content": [{"type": "image", "data": PNG}]},
        [{"type": "image", "data": PNG, "mimeType": "image/png"}],
    ),
    "image as an address": (
        {"content": [{"type": "image", "data": f"data:image/gif;base64,{PNG}"}]},
        [{"type": "image", "data": PNG, "mimeType": "image/gif"}],
    ),
    "link without name": (
        {"content": [{"type": "resource_link", "uri": "file:///a", "description": None, "size": "5"}]},
        [{"type": "resource_link", "uri": "mcpproxy://up/file%3A%2F%2F%2Fa", "name": "file:///a"}],
    ),
    "resource without uri": (
        {"content": [{"type": "resource", "resource": {"text": "a"}}]},
        [{"type": "text", "text": "a"}],
    ),
    "broken token": ({"content": [A], "_meta": {"progressToken": [1], "a": 1}}, [A]),
    "token null": ({"content": [A], "_meta": {"progressToken": None}}, [A]),
    "token with a fraction": ({"content": [A], "_meta": {"progressToken": 1.5}}, [A]),
    "long token": ({"content": [A], "_meta": {"progressToken": 2**53}}, [A]),
    "task without id": ({"content": [A], "_meta": {"io.modelcontextprotocol/related-task": {}}}, [A]),
    "meta of text": ({"content": [A], "_meta": "a"}, [A]),
    "failure of text": ({"content": [A], "isError": "true"}, [A]),
    "failure of a number": ({"content": [A], "isError": 1}, [A]),
    "no failure of a number": ({"content": [A], "isError": 0}, [A]),
    "part of a byte": ({"content": [LINK | {"size": 1.5}]}, [SEEN | {"size": 2}]),
    "size of a fraction": ({"content": [LINK | {"size": 5.0}]}, [SEEN | {"size": 5}]),
    "icons of numbers": ({"content": [LINK | {"icons": [5]}]}, [SEEN]),
    "icon without src": (
        {"content": [LINK | {"icons": [{"mimeType": "image/png"}, ICON]}]},
        [SEEN | {"icons": [ICON]}],
    ),
    "icon of one size": ({"content": [LINK | {"icons": [ICON | {"sizes": "any"}]}]}, [SEEN]),
    "time without zone": (
        {"content": [A | {"annotations": {"priority": 1.0, "lastModified": "2025-01-12T15:00:58"}}]},
        [A | {"annotations": {"priority": 1.0}}],
    ),
    "one of two": (
        {"content": [{"type": "hologram", "data": "zz"}, {"type": "text", "text": "a"}]},
        [
            {
                "type": "text",
                "text": "[Left out by the gateway, because the protocol forbids it: "
                "its content[0] is of the unknown kind 'hologram'.]",
            },
            {"type": "text", "text": "a"},
        ],
    ),
}
UNREADABLE: dict[str, tuple[Any, str]] = {
    "text null": ({"content": [{"type": "text", "text": None}]}, "the text of its content[0] is null"),
    "text missing": ({"content": [None, {"type": "text"}]}, "the text of its content[1] is missing"),
    "unknown kind": ({"content": [{"type": "hologram", "data": "zz"}]}, "content[0] is of the unknown kind 'hologram'"),
    "number": ({"content": 5}, "its content is a number instead of a list"),
    "boolean": ({"content": True}, "its content is a boolean instead of a list"),
    "list of numbers": ({"content": [5]}, "its content[0] is a number instead of an object"),
    "image without data": (
        {"content": [{"type": "image", "mimeType": "image/png"}]},
        "content[0] is image without data",
    ),
    "sound without mimeType": ({"content": [{"type": "audio", "data": "AAAA"}]}, "audio without a mimeType"),
    "link without uri": ({"content": [{"type": "resource_link", "name": "a"}]}, "is a resource link without a uri"),
    "blob without uri": ({"content": [{"type": "resource", "resource": {"blob": "AAAA"}}]}, "content[0] has no uri"),
    "resource of nothing": ({"content": [{"type": "resource", "resource": {"uri": "a:b"}}]}, "neither text nor a blob"),
    "resource of text": ({"content": [{"type": "resource", "resource": "a"}]}, "is a resource without contents"),
}
