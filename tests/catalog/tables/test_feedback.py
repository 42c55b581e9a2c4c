"""What is learned about a tool: counted, bounded, read by every process, and forgotten with the tool."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from smart_mcp_proxy.catalog import Catalog, Lesson
from smart_mcp_proxy.catalog.tables import feedback as examples_module
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.models import ToolKey

pytestmark = pytest.mark.anyio

MakeTool = Callable[..., dict[str, Any]]
OpenCatalog = Callable[..., AbstractAsyncContextManager[Catalog]]

PAINT = ToolKey("s", "paint")


def lesson(question: str, key: ToolKey = PAINT, at_s: float = 1.0) -> Lesson:
    """A question, its words taken as they stand."""
    return Lesson(key, question, question, at_s)


def searched_with(catalog: Catalog, key: ToolKey = PAINT) -> tuple[str, ...]:
    return catalog.snapshot.by_key[key].examples


async def learned(catalog: Catalog, *lessons: Lesson) -> None:
    await catalog.learn(lessons)
    await catalog.refresh()


async def test_a_question_is_an_example_from_its_second_use_on(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """Once changes nothing that a search sees; the third time changes no more than the count."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("paint"), tool("other")])
        before = catalog.snapshot
        await learned(catalog, lesson("daub it"))
        assert catalog.snapshot is before
        await learned(catalog, lesson("daub it", at_s=5.0))
        assert searched_with(catalog) == ("daub it",)
        diff = catalog.snapshot.since(before)
        assert ([record.key for record in diff.changed], diff.added, diff.removed) == ([PAINT], (), ())
        assert catalog.snapshot.by_key[PAINT].digest == before.by_key[PAINT].digest
        before = catalog.snapshot
        await learned(catalog, lesson("daub it", at_s=3.0))
        assert catalog.snapshot is before
        (example,) = await catalog.read_examples(PAINT)
        assert (example.question, example.uses, example.last_used_s, example.is_confirmed) == ("daub it", 3, 5.0, True)


async def test_two_wordings_with_the_same_words_are_one_question(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """The first wording stays, so that what is searched with changes only once."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("paint")])
        await learned(
            catalog, Lesson(PAINT, "daub a wall", "daub wall", 1), Lesson(PAINT, "a wall daub", "daub wall", 2)
        )
        assert searched_with(catalog) == ("daub a wall",)


async def test_examples_outlive_restarts_and_changed_definitions_but_not_their_tool(
    open_catalog: OpenCatalog, tool: MakeTool
) -> None:
    """A tool that comes back starts without any."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("paint")])
        await learned(catalog, lesson("daub"), lesson("daub"))
    async with open_catalog() as catalog:
        assert searched_with(catalog) == ("daub",)
        await catalog.sync("s", [tool("paint", title="Painter")])
        assert searched_with(catalog) == ("daub",)
        await catalog.sync("s", [tool("other")])
        await catalog.sync("s", [tool("paint")])
        assert searched_with(catalog) == ()
        assert await catalog.read_examples(PAINT) == ()
        await learned(catalog, lesson("daub"), lesson("daub"))
        await catalog.forget_servers([])
        await catalog.sync("s", [tool("paint")])
        assert await catalog.read_examples(PAINT) == ()
        await learned(catalog, lesson("daub"), lesson("daub"))
    async with open_catalog(reset=True) as catalog:
        await catalog.sync("s", [tool("paint")])
        assert await catalog.read_examples(PAINT) == ()


async def test_nothing_is_learned_about_a_tool_that_left(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """It may go between a call and the moment its lesson is stored."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("other")])
        await learned(catalog, lesson("daub"), lesson("daub"))
        await catalog.sync("s", [tool("other"), tool("paint")])
        assert await catalog.read_examples(PAINT) == ()


async def test_another_process_sees_what_was_learned_and_forgotten(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """With its next refresh."""
    async with open_catalog() as one, open_catalog() as two:
        await one.sync("s", [tool("paint")])
        await one.learn([lesson("daub"), lesson("daub")])
        assert await two.refresh()
        assert searched_with(two) == ("daub",)
        await one.forget_examples(PAINT)
        assert await two.refresh()
        assert searched_with(two) == ()


async def test_a_tool_keeps_twenty_examples_and_twenty_candidates(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """The least recently used leave; questions asked once, however many, drive out no confirmed one."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("paint")])
        for number in range(21):
            await catalog.learn([lesson(f"confirmed {number:02}", at_s=number)] * 2)
        await learned(catalog, *(lesson(f"once {number:02}", at_s=1_000 + number) for number in range(30)))
        assert searched_with(catalog) == tuple(f"confirmed {number:02}" for number in range(1, 21))
        kept = [example.question for example in await catalog.read_examples(PAINT)]
        assert kept[20:] == [f"once {number:02}" for number in range(29, 9, -1)]
        await learned(catalog, lesson("once 29", at_s=2_000))
        assert searched_with(catalog)[0] == "confirmed 02"
        assert "once 29" in searched_with(catalog)


async def test_all_tools_together_keep_a_bounded_number(
    open_catalog: OpenCatalog, tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least recently used leave first, and searches no longer use them."""
    monkeypatch.setattr(examples_module, "_KEPT", 3)
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool(name) for name in "abcd"])
        for at_s, name in enumerate("abcd"):
            await learned(catalog, *[lesson(name, ToolKey("s", name), at_s)] * 2)
        assert [searched_with(catalog, ToolKey("s", name)) for name in "abcd"] == [(), ("b",), ("c",), ("d",)]


async def test_one_question_one_tool_or_everything_is_forgotten(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """What was asked once is forgotten too, and the number says how many questions there were."""
    other = ToolKey("s", "other")
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("paint"), tool("other")])
        lessons = [lesson("one"), lesson("one"), lesson("two"), lesson("one", other), lesson("one", other)]
        await learned(catalog, *lessons)
        before = catalog.snapshot
        assert await catalog.forget_examples(PAINT, "two") == 1
        assert await catalog.forget_examples(PAINT, "never asked") == 0
        await catalog.refresh()
        assert catalog.snapshot is before
        assert await catalog.forget_examples(PAINT) == 1
        await catalog.refresh()
        assert (searched_with(catalog), searched_with(catalog, other)) == ((), ("one",))
        await learned(catalog, *lessons)
        assert await catalog.forget_examples() == 3
        await catalog.refresh()
        assert (searched_with(catalog), searched_with(catalog, other)) == ((), ())


async def test_a_store_that_fails_takes_no_lessons_and_loses_no_examples(
    open_catalog: OpenCatalog, tool: MakeTool, store: Any
) -> None:
    """Lessons are refused, so that their keeper offers them again; what was searched with stays so."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("paint")])
        await learned(catalog, lesson("daub"), lesson("daub"))
        store.lose()
        with pytest.raises(CatalogError):
            await catalog.learn([lesson("daub")])
        assert await catalog.read_examples(PAINT) == ()
        await catalog.sync("s", [tool("paint", title="Painter")])
        assert searched_with(catalog) == ("daub",)


async def test_what_was_learned_while_the_clock_was_ahead_leaves_as_everything_else(
    open_catalog: OpenCatalog, tool: MakeTool
) -> None:
    """F57: a year ahead, then right again, or a day back: what is learned now is neither dropped nor outlived."""
    now_s, day_s = 1_700_000_000.0, 86_400.0
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("paint")])
        many = [f"early {number:02}" for number in range(2 * examples_module._KEPT_PER_TOOL)]
        await catalog.learn([lesson(question, at_s=now_s + 365 * day_s) for question in many])
        for at_s in (now_s, now_s - day_s):
            await learned(catalog, lesson(f"new {at_s}", at_s=at_s))
            await learned(catalog, lesson(f"new {at_s}", at_s=at_s + 1))
            assert f"new {at_s}" in searched_with(catalog)
        assert max(one.last_used_s for one in await catalog.read_examples(PAINT)) <= now_s + 1
