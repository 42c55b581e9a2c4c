"""Long outputs: what an agent is shown of them, and how the rest is read."""

import asyncio
import json
import re
from functools import partial
from threading import Thread
from typing import Any

import pytest
from gateway_fakes import HandClock
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.results import outputs as outputs_module
from smart_mcp_proxy.gateway.results.outputs import KEEP_S, META_KEY, TAIL_CHARS, OutputPage, Outputs, truncate

MARKER = re.compile(
    r"\n\[\.\.\. (\d+) of (\d+) (characters|records) shown; read_output key=([0-9a-f]{32}) offset=(\d+) \.\.\.\]\n"
)
LIMITS = st.integers(200, 900)
PIECES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
TEXTS = PIECES | st.builds(lambda pieces, times: "".join(pieces) * times, st.lists(PIECES), st.integers(1, 40))
"""Short ones, and ones that are often longer than any limit here."""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
PIXEL = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


def kept_outputs() -> Outputs:
    return Outputs(HandClock())


def page_of(outputs: Outputs, key: str, principal: str, offset: int, limit: int) -> OutputPage:
    return asyncio.run(outputs.page(key, principal, offset, limit))


def result_of(*texts: str, **members: Any) -> bytes:
    """A tool result with these text blocks."""
    return json.dumps({"content": [{"type": "text", "text": text} for text in texts]} | members).encode()


def cut(raw: bytes, limit: int, outputs: Outputs | None = None, principal: str = "local") -> dict[str, Any]:
    shortened = truncate(raw, limit, partial((outputs or kept_outputs()).keep, principal=principal))
    value: dict[str, Any] = json.loads(shortened)
    return value


def read_all(outputs: Outputs, key: str, limit: int, start: int = 0) -> list[Any]:
    """The items of all pages from `start` on."""
    items: list[Any] = []
    offset: int | None = start
    while offset is not None:
        page = page_of(outputs, key, "local", offset, limit)
        assert page.next_offset is None or page.next_offset > offset
        items.extend(page.items if isinstance(page.items, str) else map(json.loads, map(bytes, page.items)))
        offset = page.next_offset
    return items


@pytest.mark.long  # a third of a second of processor time
@given(text=TEXTS, limit=LIMITS)
@settings(max_examples=150, deadline=None)
def test_any_text_fits_its_limit_with_marker_and_tail(text: str, limit: int) -> None:
    """Short text comes byte for byte; of long text the head, the marker and the last 50 characters."""
    raw = result_of(text)
    if len(text) <= limit:
        assert truncate(raw, limit, partial(kept_outputs().keep, principal="local")) == raw
        return
    (block,) = cut(raw, limit)["content"]
    shown = block["text"]
    assert len(shown) <= limit
    marker = MARKER.search(shown)
    assert marker is not None
    head_chars = int(marker[1])
    if marker[3] == "characters":
        assert shown == text[:head_chars] + marker[0] + text[-TAIL_CHARS:]
        assert len(shown) >= limit - 12  # no more is lost than the digits of the marker may need
    assert (int(marker[5]), shown[-TAIL_CHARS:]) == (head_chars, text[-TAIL_CHARS:])


@given(
    some=st.lists(VALUES, min_size=2, max_size=8),
    times=st.integers(1, 20),
    limit=LIMITS,
    indent=st.sampled_from([None, 1]),
)
@settings(max_examples=80, deadline=None)
@pytest.mark.long  # many generated examples
def test_records_of_an_array_are_shown_whole(some: list[Any], times: int, limit: int, indent: int | None) -> None:
    """The head is the beginning of the same array, its marker counts records, and the pages hold the rest."""
    records = some * times
    text = json.dumps(records, indent=indent, ensure_ascii=False)
    outputs = kept_outputs()
    result = cut(result_of(text), limit, outputs)
    shown = result["content"][0]["text"]
    if len(text) <= limit:
        assert shown == text
        return
    assert len(shown) <= limit
    marker = MARKER.search(shown)
    assert marker is not None
    assert (marker[3], int(marker[2])) == ("records", len(records))
    count = int(marker[1])
    if count:
        assert json.loads(shown[: marker.start()] + "]") == records[:count]
    assert read_all(outputs, marker[4], 3, start=count) == records[count:]


@given(text=TEXTS, page_chars=st.integers(1, 700))
@settings(max_examples=100, deadline=None)
@pytest.mark.long  # many generated examples
def test_the_pages_of_a_text_join_to_the_whole(text: str, page_chars: int) -> None:
    """Nothing is lost or repeated at the page ends."""
    outputs = kept_outputs()
    key, unit = outputs.keep(text, "local")
    assume(unit == "characters")
    assert "".join(read_all(outputs, key, page_chars)) == text


def test_a_record_too_long_to_show_is_still_read_from_the_first_one() -> None:
    """The head is a torn piece then, and the marker says that no whole record was shown."""
    outputs = kept_outputs()
    records = ["x" * 1000, "y" * 1000]
    shown = cut(result_of(json.dumps(records)), 300, outputs)["content"][0]["text"]
    marker = MARKER.search(shown)
    assert marker is not None
    assert (marker[1], marker[3]) == ("0", "records")
    assert len(shown) <= 300
    assert read_all(outputs, marker[4], 10) == records


def test_a_page_of_long_records_is_not_longer_than_a_page() -> None:
    """The default limit in records would undo the cut; each page holds what fits, and at least one record."""
    outputs = kept_outputs()
    records = ["x" * 9000, "y" * 9000, "z" * 9000, "w" * 50_000, "v"]
    key, _ = outputs.keep(json.dumps(records), "local")
    page = page_of(outputs, key, "local", 0, 4000)
    assert (len(page.items), page.next_offset, page.total) == (2, 2, 5)
    alone = page_of(outputs, key, "local", 3, 4000)
    assert (len(alone.items), alone.next_offset) == (1, 4)
    assert read_all(outputs, key, 4000) == records


def test_records_are_paged_to_the_letter() -> None:
    """Big integers and floats are not read and written again."""
    outputs = kept_outputs()
    text = "[123456789012345678901234567890, 1e999, 1.0, -0.0, 1E+2, " + ", ".join(["0"] * 100) + "]"
    key, unit = outputs.keep(text, "local")
    assert unit == "records"
    items = page_of(outputs, key, "local", 0, 5).items
    assert not isinstance(items, str)
    assert [bytes(item) for item in items] == [b"123456789012345678901234567890", b"1e999", b"1.0", b"-0.0", b"1E+2"]


def test_several_text_blocks_are_cut_as_one() -> None:
    """The limit holds for all of them together, and reading gives all of them."""
    outputs = kept_outputs()
    texts = ["a" * 180, "b" * 180, "c" * 180]
    result = cut(result_of(*texts), 400, outputs)
    (block,) = result["content"]
    assert len(block["text"]) <= 400
    key = result["_meta"][META_KEY]["key"]
    assert "".join(read_all(outputs, key, 100)) == "\n".join(texts)


def test_images_and_unknown_content_stay_behind_the_cut_text() -> None:
    """Only text is shortened."""
    odd = {"type": "hologram", "text": 5, "n": 12345678901234567890123, "f": 1e22}
    content = [PIXEL, {"type": "text", "text": "t" * 500}, odd]
    result = cut(json.dumps({"content": content}).encode(), 250)
    assert result["content"][1:] == [PIXEL, odd]
    assert len(result["content"][0]["text"]) <= 250


def test_an_image_alone_is_never_cut() -> None:
    """However long its data is."""
    raw = json.dumps({"content": [PIXEL | {"data": "A" * 5000}]}).encode()
    assert truncate(raw, 200, partial(kept_outputs().keep, principal="local")) == raw


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: {"result": value}], ids=["same", "wrapped"])
def test_structured_content_that_repeats_the_text_goes_with_the_cut(wrap: Any) -> None:
    """It would bring back in full what was cut; the kept text holds it once."""
    outputs = kept_outputs()
    records = [{"n": n} for n in range(100)]
    result = cut(result_of(json.dumps(records), structuredContent=wrap(records)), 300, outputs)
    assert "structuredContent" not in result
    note = result["_meta"][META_KEY]
    assert (note["unit"], note["total_chars"]) == ("records", len(json.dumps(records)))


def test_a_text_that_fits_comes_with_the_structured_content_that_repeats_it() -> None:
    """The wrapping alone does not make it too long."""
    raw = result_of("t" * 198, structuredContent={"result": "t" * 198})
    assert truncate(raw, 200, partial(kept_outputs().keep, principal="local")) == raw


def test_structured_content_beside_a_summary_can_be_read_whole() -> None:
    """What the text does not say is kept with it, not thrown away."""
    outputs = kept_outputs()
    rows = {"rows": list(range(300))}
    result = cut(result_of("300 rows", structuredContent=rows), 250, outputs)
    assert "structuredContent" not in result
    (block,) = result["content"]
    assert block["text"].startswith("300 rows\n{")
    assert len(block["text"]) <= 250
    whole = "".join(read_all(outputs, result["_meta"][META_KEY]["key"], 500))
    assert json.loads(whole.removeprefix("300 rows\n")) == rows


@pytest.mark.parametrize("content", [{"content": []}, {}, {"content": None}, {"content": [PIXEL]}])
def test_a_result_of_structured_content_only_is_cut_too(content: dict[str, Any]) -> None:
    """Whatever stands, or does not stand, in `content`."""
    outputs = kept_outputs()
    value = {"a": ["é" * 10] * 60}
    raw = json.dumps(content | {"structuredContent": value}, ensure_ascii=False).encode()
    result = cut(raw, 200, outputs)
    text, *others = result["content"]
    assert len(text["text"]) <= 200
    assert others == [block for block in content.get("content") or [] if block["type"] == "image"]
    assert json.loads("".join(read_all(outputs, result["_meta"][META_KEY]["key"], 100))) == value


@pytest.mark.parametrize(("meta", "others"), [({"a/b": [1]}, {"a/b": [1]}), (None, {})])
def test_the_note_stands_beside_the_results_other_members(meta: Any, others: dict[str, Any]) -> None:
    """`isError`, `_meta` and members of later versions stay."""
    result = cut(result_of("t" * 500, _meta=meta, isError=True, later=[1]), 200)
    note = result["_meta"].pop(META_KEY)
    assert result["_meta"] == others
    assert (result["isError"], result["later"]) == (True, [1])
    assert (note["unit"], note["total_chars"]) == ("characters", 500)


def test_characters_are_counted_not_bytes() -> None:
    """200 characters of any script are 200 characters."""
    raw = json.dumps({"content": [{"type": "text", "text": "漢" * 200}]}, ensure_ascii=False).encode()
    assert truncate(raw, 200, partial(kept_outputs().keep, principal="local")) == raw


def test_a_key_opens_for_its_principal_only() -> None:
    """Somebody else's key is like one that does not exist."""
    outputs = kept_outputs()
    key, _ = outputs.keep("text", "ann")
    assert page_of(outputs, key, "ann", 0, 10).items == "text"
    with pytest.raises(RequestError) as foreign:
        page_of(outputs, key, "bob", 0, 10)
    with pytest.raises(RequestError) as unknown:
        page_of(outputs, "0" * 32, "bob", 0, 10)
    assert foreign.value.error_code == unknown.value.error_code == "output_not_found"
    assert foreign.value.message.replace(key, "") == unknown.value.message.replace("0" * 32, "")


def test_keys_have_128_bits_and_differ() -> None:
    """They cannot be guessed."""
    outputs = kept_outputs()
    keys = {outputs.keep("same", "local")[0] for _ in range(50)}
    assert len(keys) == 50
    assert all(re.fullmatch("[0-9a-f]{32}", key) for key in keys)


def test_an_output_is_kept_for_one_hour(clock: HandClock) -> None:
    """Just before it is there, then it is gone and its memory free."""
    outputs = Outputs(clock)
    key, _ = outputs.keep("text", "local")
    clock.now_s += KEEP_S - 1
    assert page_of(outputs, key, "local", 0, 10).items == "text"
    clock.now_s += 1
    with pytest.raises(RequestError, match="No output is kept"):
        page_of(outputs, key, "local", 0, 10)
    assert repr(outputs) == "<Outputs 0 kept, 0 bytes>"
    assert KEEP_S == 3600


def test_the_oldest_outputs_make_room_for_new_ones(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """All together stay under the cap; the newest is kept even if it alone is larger."""
    assert outputs_module.KEEP_BYTES == 64 * 1024 * 1024
    monkeypatch.setattr(outputs_module, "KEEP_BYTES", 10_000)
    outputs = Outputs(clock)
    first, second, third = (outputs.keep(letter * 4000, "local")[0] for letter in "abc")
    with pytest.raises(RequestError):
        page_of(outputs, first, "local", 0, 1)
    assert [page_of(outputs, key, "local", 0, 1).items for key in (second, third)] == ["b", "c"]
    large, _ = outputs.keep("d" * 20_000, "local")
    assert page_of(outputs, large, "local", 0, 1).items == "d"
    assert repr(outputs).startswith("<Outputs 1 kept, 20")


def test_an_output_may_be_kept_while_another_is_read() -> None:
    """Long ones are cut in threads."""
    keeping = list[Thread]()

    def clock() -> float:
        if outputs is not None and not keeping:
            keeping.append(Thread(target=outputs.keep, args=("other", "local")))
            keeping[0].start()
            keeping[0].join(0.1)
        return 0.0

    outputs: Outputs | None = None
    made = Outputs(clock)
    key, _ = made.keep("text", "local")
    made.keep("more", "local")
    outputs = made
    assert page_of(made, key, "local", 0, 10).items == "text"
    keeping[0].join(5)
    assert not keeping[0].is_alive()
    assert repr(made).startswith("<Outputs 3 kept")


def test_an_offset_behind_the_end_says_where_the_end_is() -> None:
    """At the end there is an empty page, beyond it an error."""
    outputs = kept_outputs()
    key, _ = outputs.keep("12345", "local")
    page = page_of(outputs, key, "local", 5, 10)
    assert (page.items, page.total, page.next_offset) == ("", 5, None)
    with pytest.raises(RequestError, match=r"offset 6 lies behind the end.*5"):
        page_of(outputs, key, "local", 6, 10)
