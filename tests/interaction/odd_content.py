"""What `odd_upstream.py` answers with, for the tests to compare."""

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LONG_TEXT = "0123456789abcdef" * (2 * 1024 * 1024 // 16)
CONTENT = [
    {"type": "text", "text": "plain ✓", "annotations": {"audience": ["user"], "priority": 0.5}},
    {"type": "image", "data": PIXEL, "mimeType": "image/png", "_meta": {"example.org/camera": "left"}},
    {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "file:///a%20b.txt", "name": "a b", "size": 12, "mimeType": "text/plain"},
    {"type": "resource", "resource": {"uri": "note://1", "mimeType": "text/plain", "text": "inside"}},
    {"type": "resource", "resource": {"uri": "note://2", "mimeType": "image/png", "blob": PIXEL}},
]
