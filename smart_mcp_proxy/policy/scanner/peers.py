"""Tools of other servers: named in a definition, copied, or nearly so."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence, excerpt
from smart_mcp_proxy.policy.scanner.wording import LOOKALIKES, Reading

REFERENCE_WEIGHT, CLONE_WEIGHT, NAMESAKE_WEIGHT = 0.6, 0.6, 0.1
LEAST_COMMON_WORDS = 4
LEAST_SHARE = 0.75
"""Share of the shorter description's words that a copy has in common with the other."""
SIBLING_SHARE = 0.5
SIBLING_TOOLS = 3
"""Two servers with so many names in common are two of a kind, as two accounts of one service are."""
_WORD = re.compile(r"\w{3,}")
_TOKEN = re.compile(r"(?<![a-z])[a-z][a-z0-9]*+(?:[_-][a-z0-9]++)++", re.ASCII)
"""Possessive and from the start of a word only: nothing is tried twice."""
_SEPARATORS = re.compile(r"[\W_]+")
_DISTINCTIVE_CHARS = 6
_DIGITS = str.maketrans("01", "ol")


class PeerTool(NamedTuple):
    """A tool of some server.

    Attributes:
        server: Configured name.
        tool: The tool's own name.
        description: May be empty.
    """

    server: str
    tool: str
    description: str = ""


class Peers:
    """All tools that agents can see beside the one that is scanned, ready to be looked up.

    Args:
        tools: Of every server, the scanned tool's own included.
    """

    def __init__(self, tools: Iterable[PeerTool] = ()) -> None:
        self._by_name: dict[str, list[PeerTool]] = defaultdict(list)
        self._names: dict[str, set[str]] = defaultdict(set)
        for peer in tools:
            self._by_name[skeleton(peer.tool)].append(peer)
            self._names[peer.server].add(skeleton(peer.tool))
        self._words: dict[PeerTool, frozenset[str]] = {}

    def evidence(self, server: str, definition: Mapping[str, Any], reading: Reading) -> Iterator[Evidence]:
        """Evidence that a definition of `server` is about other servers' tools."""
        if not self._by_name:
            return
        name = str(definition.get("name", ""))
        yield from self._namesakes(server, name, str(definition.get("description") or ""))
        yield from self._references(server, name, reading)

    def _namesakes(self, server: str, name: str, description: str) -> Iterator[Evidence]:
        others = [peer for peer in self._by_name.get(skeleton(name), ()) if peer.server != server]
        for peer in others:
            where = f"'{peer.tool}' of server '{peer.server}'"
            if not name.isascii() and peer.tool != name:
                yield Evidence(
                    "near_name", DECISIVE, "$.name", f"The name looks like {where}.", excerpt(name, 0, len(name))
                )
            elif self._are_siblings(server, peer.server):
                continue
            elif self._is_copy(description, peer):
                yield Evidence(
                    "clone",
                    CLONE_WEIGHT,
                    "$.description",
                    f"It says the same as {where}.",
                    excerpt(description, 0, 120),
                )
            else:
                yield Evidence(
                    "same_name", NAMESAKE_WEIGHT, "$.name", f"It has the name of {where}.", excerpt(name, 0, 120)
                )

    def _references(self, server: str, name: str, reading: Reading) -> Iterator[Evidence]:
        compound = [word for word in reading.words if "_" in word or "-" in word]
        if self._by_name.keys().isdisjoint(map(skeleton, _TOKEN.findall(" ".join(compound)))):
            return
        own = self._names.get(server, set())
        for match in _TOKEN.finditer(reading.text):
            known = skeleton(match[0])
            if known not in self._by_name or known in own or known == skeleton(name) or len(known) < _DISTINCTIVE_CHARS:
                continue
            others = sorted({peer.server for peer in self._by_name[known]})
            if reading.place(match.start()).endswith("~"):  # a parameter of that name calls no tool
                continue
            reason = f"It speaks of '{match[0]}', a tool of server '{others[0]}'."
            yield reading.evidence("cross_reference", REFERENCE_WEIGHT, match.start(), match.end(), reason)

    def _are_siblings(self, server: str, other: str) -> bool:
        own, foreign = self._names.get(server, set()), self._names.get(other, set())
        common = len(own & foreign)
        return common >= SIBLING_TOOLS and common >= SIBLING_SHARE * min(len(own), len(foreign))

    def _is_copy(self, description: str, peer: PeerTool) -> bool:
        if peer not in self._words:
            self._words[peer] = _casefold_words(peer.description)
        mine, other = _casefold_words(description), self._words[peer]
        common = len(mine & other)
        return common >= LEAST_COMMON_WORDS and common >= LEAST_SHARE * min(len(mine), len(other))


def skeleton(name: str) -> str:
    """Skeleton of a name: look-alike letters, case and separators unified."""
    if name.isascii():
        return _SEPARATORS.sub("", name.lower().translate(_DIGITS))
    plain = unicodedata.normalize("NFKC", name).casefold().translate(LOOKALIKES).translate(_DIGITS)
    return _SEPARATORS.sub("", plain)


def _casefold_words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))
