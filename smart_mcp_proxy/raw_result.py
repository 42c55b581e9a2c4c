"""A result as its server wrote it: passed on unread where that is possible, and looked through once where it is not."""

from collections.abc import Mapping

import msgspec

__all__ = ["OUTLINE_BYTES", "RawResult", "outline_of"]

OUTLINE_BYTES = 64
"""Of a member's value: enough for a flag, a word, or to see what kind of value it is."""
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def outline_of(text: bytes | memoryview) -> dict[str, bytes]:
    """The members of a JSON object by name, of each value the first 64 bytes.

    Not the values themselves: they would refer to the text that refers to them, and live until a collection.

    Raises:
        msgspec.MsgspecError: It is no object.
    """
    members = _members.decode(text)
    return {name: bytes(memoryview(members[name])[:OUTLINE_BYTES]) for name in members}


class RawResult(bytes):
    """A result's JSON text as a server wrote it; however many ask what is in it, it is looked through once."""

    _outline: Mapping[str, bytes] | None = None

    @classmethod
    def with_outline(cls, text: bytes | msgspec.Raw, outline: Mapping[str, bytes]) -> "RawResult":
        """One that was looked through before."""
        result = cls(text)
        result._outline = outline
        return result

    @property
    def outline(self) -> Mapping[str, bytes]:
        """Its members; see `outline_of`."""
        if self._outline is None:
            self._outline = outline_of(self)
        return self._outline
