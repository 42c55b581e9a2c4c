"""Makes any text fit for a tokenizer or a service."""


def encodable(text: str) -> str:
    """The text with a question mark for every lone surrogate, which UTF-8 and so every encoder refuses."""
    return text.encode("utf-8", "replace").decode("utf-8")


def cut(text: str, limit_bytes: int) -> str:
    """The longest beginning of an encodable text that has at most `limit_bytes` bytes in UTF-8."""
    return text.encode("utf-8")[:limit_bytes].decode("utf-8", "ignore")
