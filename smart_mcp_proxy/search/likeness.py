"""Likeness of tools by the words of names and descriptions, in constant time and memory."""

import re
from collections.abc import Mapping
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.engine import Arrays

_READ_CHARS = 2_000
"""Characters that are read of a description; 98 of 100 real ones are shorter, and a copy shows in its beginning."""

_WORD_BITS = 512
"""Size of a set of words. The 20 words of a usual description share a bit once in three times, 100 words ten times:
an error of a few percent, the same in each direction."""

_CLONE_SHARE = 0.9
"""Share of common words (Jaccard) from which two tools of one name say the same."""

_LIKE_SHARE, _LIKE_PART, _LIKE_WORDS = 0.4, 0.8, 4
"""Two descriptions are alike from 0.4 of common words on, or where one of at least 4 words has 0.8 of its own in the
other. Copies with a quarter of the words replaced were told by it; the answers to 1,100 queries over 5,000 honest
tools stayed as they were, but for one."""

_EMBELLISHED_SHARE = 0.5
"""The least common share of a tool and its copy that has words of praise added."""

_VARIANT_WORDS, _VARIANT_SHARE = 2, 0.5
"""Names are variants of one from two words in common on, if these are half of the shorter one: `smart_create_issue_hub`
and `turbo_create_issue_kit`, and no `create_issue` and `delete_issue`."""

_STOP_WORDS = frozenset(re.findall(r"\w+", "a an and are as at be by for from in is it of on or that the this to with"))

_PRAISE = frozenset(
    re.findall(
        r"\w+",
        """advanced always amazing authentic awesome best better brilliant enhanced excellent exceptional extraordinary
        fantastic finest flawless foremost genuine great greatest greater improved incomparable incredible instead
        magnificent matchless mightiest official officially outstanding peerless perfect powerful preeminent preferred
        premier premium pro proven recommended reliable remarkable reputable revolutionary sophisticated splendid
        stellar sublime super superb superior supreme terrific topmost trusted trustworthy ultimate ultra unbeatable
        unequaled unequalled unmatched unparalleled unrivaled unrivalled unsurpassed verified wonderful world""",
    )
)
"""Words that say how good a tool is, not what it does; those that name things as well (new, top, fast) are not here."""

_FAINT_PRAISE = frozenset(
    re.findall(
        r"\w+", "fast faster fastest first latest leading mega modern new newest next smart smarter smartest top"
    )
)
"""Words that name things as well: in the name of a tool whose text praises it they are praise, else they are not."""

_PRAISE_PHRASE = re.compile(
    r"#1\b|\b(?:(?:no\.? ?|number[ -])(?:1|one)|(?:award|prize)[ -]winning|(?:best|first|world)[ -](?:in[ -])?class|"
    r"(?:bleeding|cutting)[ -]edge|(?:five|5)[ -]stars?|game[ -]changing|record[ -]breaking|gold[ -]standard|"
    r"(?:high|highest|top)[ -](?:class|end|notch|of[ -]the[ -]line|quality|ranked|rated|ranking|rating|tier)|"
    r"highly[ -](?:rated|recommended)|(?:industry|market|world)[ -]leading|most (?:accurate|capable|complete|powerful)|"
    r"must-have|next[ -]gen(?:eration)?|second[ -]to[ -]none|state[ -]of[ -]the[ -]art)\b"
)
"""Praise of several words, each of which may name a thing; in lower case."""

_ONE_WORD = " best "

_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")
_WORD = re.compile(r"[^\W\d_]+")


class Likeness(msgspec.Struct, frozen=True, gc=False):
    """Features of a tool that are compared.

    Attributes:
        server: Whose tool it is.
        name: The words of its name, sorted, without numbers.
        plain_name: The same without words of praise, and behind its kind where that is another than tool.
        bare_name: The same without faint praise either, if the tool is praised.
        words: The description's words as a set of bits, without stop words and praise.
        size: How many bits of `words` are set.
        praise: How often name and description praise it.
        order: A checksum of the words of `plain_name` in the order in which the name has them.
    """

    server: str
    name: str
    plain_name: str
    bare_name: str
    words: int
    size: int
    praise: int
    order: int


def compute_likeness(document: Document) -> Likeness:
    """Features of a tool; case, order, repeats and punctuation do not count."""
    in_order = dict.fromkeys(_mask_praise(" ".join(_NAME_WORD.findall(document.name)).lower()).split())
    named = sorted(word for word in in_order if not word.isdigit())
    plain = [word for word in named if word not in _PRAISE]
    order = crc32(" ".join(word for word in in_order if word in plain).encode("utf-8", "surrogatepass"))
    described = _WORD.findall(_mask_praise((document.description or document.title)[:_READ_CHARS].lower()))
    words = 0
    for word in set(described) - _STOP_WORDS - _PRAISE:
        words |= 1 << crc32(word.encode("utf-8", "surrogatepass")) % _WORD_BITS
    praise = len(named) - len(plain) + sum(word in _PRAISE for word in described)
    bare = [word for word in plain if word not in _FAINT_PRAISE] if praise else plain
    name, plain_name, bare_name = (" ".join(part) or document.name for part in (named, plain, bare))
    if document.kind != "tool":  # a tool and a prompt of one name are no clones
        plain_name, bare_name = f"{document.kind}/{plain_name}", f"{document.kind}/{bare_name}"
    return Likeness(document.server, name, plain_name, bare_name, words, words.bit_count(), praise, order)


def dump_likenesses(
    likenesses: Mapping[int, Likeness], ids: NDArray[np.int64], documents: Mapping[int, Document]
) -> Arrays:
    """The likenesses of these documents as arrays, for a file."""
    lines, words, praise, order = [], [], [], []
    for id in ids.tolist():
        mine, name = likenesses[id], documents[id].name
        # One that holds no words is the document's own, which may hold anything.
        names = ["" if each == name else each for each in (mine.name, mine.plain_name, mine.bare_name)]
        lines.append("\t".join(names if len(set(names)) > 1 else names[:1]))
        words.append(mine.words.to_bytes(_WORD_BITS // 8, "little"))
        praise.append(mine.praise)
        order.append(mine.order)
    return {
        "alike_names": np.frombuffer("\n".join(lines).encode("utf-8", "surrogatepass"), np.uint8),
        "alike_words": np.frombuffer(b"".join(words), np.uint8),
        "praise": np.array(praise, np.int32),
        "name_order": np.array(order, np.uint32),
    }


def load_likenesses(arrays: Arrays, ids: NDArray[np.int64], documents: Mapping[int, Document]) -> dict[int, Likeness]:
    """The likenesses that `dump_likenesses` wrote; `ids` are -1 for those that are gone."""
    lines = arrays["alike_names"].tobytes().decode("utf-8", "surrogatepass").split("\n")
    words, width = arrays["alike_words"].tobytes(), _WORD_BITS // 8
    found: dict[int, Likeness] = {}
    same: dict[str, str] = {}
    columns = (ids.tolist(), lines, arrays["praise"].tolist(), arrays["name_order"].tolist())
    for place, (id, line, praise, order) in enumerate(zip(*columns, strict=True)):
        if id < 0:
            continue
        document = documents[id]
        name, *others = [same.setdefault(each, each) or document.name for each in line.split("\t")]
        bits = int.from_bytes(words[place * width : (place + 1) * width], "little")
        plain, bare = others or (name, name)
        found[id] = Likeness(document.server, name, plain, bare, bits, bits.bit_count(), praise, order)
    return found


def _mask_praise(text: str) -> str:
    """A text in lower case with one word in place of each phrase of praise."""
    return _PRAISE_PHRASE.sub(_ONE_WORD, text)


def is_clone(a: Likeness, b: Likeness, *, is_one_server: bool, is_one_text: bool) -> bool:
    """Whether two tools say the same, words of praise and numbers in the names aside.

    `create_x` and `delete_x` never do, however alike they are described; nor do `a_to_b` and `b_to_a` of one server.

    Args:
        a: One tool.
        b: The other.
        is_one_server: Whether one server has both: then `lamp_1` and `lamp_2`, `getUser` and `get_user` say the same
            only where their descriptions are equal, for a server has a reason to describe them differently.
        is_one_text: Whether their descriptions are equal.
    """
    if a.plain_name != b.plain_name or (is_one_server and a.order != b.order):
        return False
    if is_one_server and a.name == b.name:
        return is_one_text
    common = (a.words & b.words).bit_count()
    return common >= _CLONE_SHARE * (a.size + b.size - common)


def is_like(a: Likeness, b: Likeness) -> bool:
    """Whether one of two tools may be a reworded copy of the other, whatever the names."""
    common = (a.words & b.words).bit_count()
    if common >= _LIKE_SHARE * (a.size + b.size - common):
        return True
    shorter = min(a.size, b.size)
    return shorter >= _LIKE_WORDS and common >= _LIKE_PART * shorter


def is_variant(a: Likeness, b: Likeness) -> bool:
    """Return whether two tools of one server may be made from one: by text, or half of a name."""
    if is_like(a, b):
        return True
    names = set(a.plain_name.split()), set(b.plain_name.split())
    common = len(names[0] & names[1])
    return common >= _VARIANT_WORDS and common >= _VARIANT_SHARE * min(map(len, names))


def is_embellished(a: Likeness, b: Likeness) -> bool:
    """Whether `a` says what `b` says and praises itself more."""
    if a.praise <= b.praise or a.bare_name != b.bare_name:
        return False
    common = (a.words & b.words).bit_count()
    return common >= _CLONE_SHARE * b.size and common >= _EMBELLISHED_SHARE * (a.size + b.size - common)
