"""Learning from use: which search and which call belong together, and what is never learned."""

import json
from typing import Any

import anyio
import pytest
from gateway_fakes import FakeFleet, FakeUpstream, HandClock, Parts, ToolWork, definition

from smart_mcp_proxy.catalog import Lesson
from smart_mcp_proxy.errors import ProxyError, RequestError, ToolNotFoundError, UpstreamError
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.indexing import learning as learning_module
from smart_mcp_proxy.gateway.indexing.learning import (
    QUESTION_LIMIT_CHARS,
    SEARCHES_KEPT,
    WINDOW_S,
    Learning,
    forget_examples,
    normalize_question,
    normalize_wording,
    open_learning,
)
from smart_mcp_proxy.gateway.retrieval.retrieval import Question, Retrieval
from smart_mcp_proxy.models import CallRequest, Document, ToolKey
from smart_mcp_proxy.search import Bm25fEngine, SearchIndex
from smart_mcp_proxy.telemetry import secrets_hidden

pytestmark = pytest.mark.anyio

PAINT, MEASURE = ToolKey("alpha", "paint"), ToolKey("alpha", "measure")


class Class:
    """Learning, and the lessons that were learned in it."""

    def __init__(self, clock: HandClock) -> None:
        self.lessons: list[Lesson] = []
        self.learning = Learning(self.lessons.append, clock)

    @property
    def learned(self) -> list[tuple[str, str]]:
        """Tool and question of every lesson."""
        return [(str(lesson.key), lesson.question) for lesson in self.lessons]


@pytest.fixture
def lessons(clock: HandClock) -> Class:
    return Class(clock)


def test_a_call_after_a_search_that_showed_its_tool_is_a_lesson(lessons: Class) -> None:
    """One for each search, however often the tool is called; each tool of the answer may have its own."""
    lessons.learning.record_search("ann", "s1", "daub  the Wall", [PAINT, MEASURE])
    for key in (PAINT, PAINT, MEASURE):
        lessons.learning.learn_from_call("ann", "s1", key)
    assert lessons.learned == [("alpha:paint", "daub the Wall"), ("alpha:measure", "daub the Wall")]
    assert lessons.lessons[0].words == "daub wall"
    lessons.learning.record_search("ann", "s1", "daub the wall", [PAINT])
    lessons.learning.learn_from_call("ann", "s1", PAINT)
    assert len(lessons.lessons) == 3


def test_the_latest_search_that_showed_the_tool_is_the_one_that_teaches(lessons: Class) -> None:
    """Searches for other steps may lie between."""
    for question, found in [("daub", [PAINT]), ("colour it", [PAINT]), ("how long", [MEASURE])]:
        lessons.learning.record_search("ann", None, question, found)
    lessons.learning.learn_from_call("ann", None, PAINT)
    assert lessons.learned == [("alpha:paint", "colour it")]


def test_nothing_is_learned_from_what_does_not_belong_together(lessons: Class, clock: HandClock) -> None:
    """Another tool, another principal, another session, too much later, too many searches ago."""
    learning = lessons.learning
    learning.record_search("ann", "s1", "daub", [PAINT])
    for principal, session, key in [
        ("ann", "s1", MEASURE),
        ("bob", "s1", PAINT),
        ("ann", "s2", PAINT),
        ("ann", None, PAINT),
    ]:
        learning.learn_from_call(principal, session, key)
    clock.now_s += WINDOW_S + 1
    learning.learn_from_call("ann", "s1", PAINT)
    assert lessons.learned == []
    learning.record_search("ann", "s1", "daub", [PAINT])
    for number in range(SEARCHES_KEPT):
        learning.record_search("ann", "s1", f"step {number}", [MEASURE])
    learning.learn_from_call("ann", "s1", PAINT)
    assert lessons.learned == []


def test_a_call_at_the_end_of_the_window_still_counts(lessons: Class, clock: HandClock) -> None:
    """A person may have been asked for approval meanwhile."""
    lessons.learning.record_search("ann", None, "daub", [PAINT])
    clock.now_s += WINDOW_S
    lessons.learning.learn_from_call("ann", None, PAINT)
    assert lessons.learned == [("alpha:paint", "daub")]


def test_only_so_many_agents_are_remembered(lessons: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions come and go by the thousand; the one that was silent longest is forgotten."""
    monkeypatch.setattr(learning_module, "AGENTS_KEPT", 2)
    for session in ("s1", "s2", "s1", "s3"):
        lessons.learning.record_search("ann", session, "daub", [PAINT])
    for session in ("s1", "s2", "s3"):
        lessons.learning.learn_from_call("ann", session, PAINT)
    assert len(lessons.lessons) == 2


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("create a github issue", "create a github issue"),
        ("  two\n\tlines \u2028 ", "two lines"),
        ("bell \x07 and \x1b[31mred\x1b[0m, \u202eright to left, \ud800", "bell and [31mred[0m, right to left,"),
        ("x" * QUESTION_LIMIT_CHARS, "x" * QUESTION_LIMIT_CHARS),
        ("what is the weather in Zürich?", "what is the weather in Zürich?"),
        ("天気予報", "天気予報"),
        ("list secrets of the vault and rotate a token", "list secrets of the vault and rotate a token"),
        ("convert /home/ann/2026/report.final.pdf to text", "convert /home/ann/2026/report.final.pdf to text"),
    ],
)
def test_a_question_is_stored_in_one_clean_line(asked: str, stored: str) -> None:
    """Without anything that could take control of a terminal."""
    assert normalize_question(asked) == stored


@pytest.mark.parametrize(
    "asked",
    [
        "",
        " \n",
        "?!",
        "x" * (QUESTION_LIMIT_CHARS + 1),
        "a" + " " * 10_000 + "b",
        "log in with password: hunter2",
        "my password is hunter2",
        "use API key=abc",
        "send Authorization: x",
        "curl with Bearer abcdefgh123",
        "deploy with sk-proj1234567890",
        "clone with ghp_abcdefgh1234",
        "sign with AKIAIOSFODNN7EXAMPLE",
        "use eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
        "decrypt 9f86d081884c7d659a2feaa0c55ad015",
        "connect to postgres://ann:hunter2@db/x",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_a_question_that_may_hold_a_secret_is_not_stored(asked: str) -> None:
    """Nor one that is too long, or holds no word."""
    assert normalize_question(asked) is None


def test_a_secret_in_use_is_never_stored() -> None:
    """Whatever it looks like, also with invisible characters in between."""
    with secrets_hidden(["tree house"]):
        assert normalize_question("climb the tree house") is None
        assert normalize_question("climb the tree\u200b house") is None
    assert normalize_question("climb the tree house") == "climb the tree house"


def test_wordings_with_the_same_words_are_one_question() -> None:
    """Order, case, endings and little words do not matter; other words do."""
    assert normalize_wording("Create a github issue") == normalize_wording("issues to CREATE in github")
    assert normalize_wording("create an issue") != normalize_wording("close an issue")


class LearningSetup:
    """Search and call path over the fake server alpha, with learning on."""

    def __init__(self, parts: Parts, lessons: Class) -> None:
        self.alpha = FakeUpstream("alpha")
        fleet: Any = FakeFleet(self.alpha)
        notebook: Any = parts.notebook
        work = ToolWork(fleet, parts.catalog, parts.index, parts.visible.sees, parts.clock)
        work.index_sync.loaded.set()
        self.retrieval = Retrieval(
            parts.visible,
            parts.catalog,
            work.index_sync,
            work.lists,
            lambda: [self.alpha.status],
            notebook,
            learning=lessons.learning,
        )
        path = RequestPath(fleet, notebook, CallLimits(), parts.clock)
        self.calls = Calls(path, parts.visible, parts.outputs, learning=lessons.learning)

    async def search(self, query: str, **fields: Any) -> None:
        answer = await self.retrieval.retrieve(Question(query, 5, session="s1", **fields))
        assert answer["tools"], query

    async def call(self, name: str, **fields: Any) -> None:
        request = CallRequest(name, {}, **{"variant": "write", "session": "s1"} | fields)
        assert json.loads((await self.calls.call(request)).text)


@pytest.fixture
async def setup(parts: Parts, lessons: Class) -> LearningSetup:
    await parts.sync("alpha", [definition("paint", "Paint a wall."), definition("measure", "Measure a wall.")])
    return LearningSetup(parts, lessons)


async def test_a_successful_call_after_a_search_is_learned(setup: LearningSetup, lessons: Class) -> None:
    """By either name of the tool."""
    await setup.search("wall")
    await setup.call("alpha:paint")
    await setup.call("alpha__measure")
    assert lessons.learned == [("alpha:paint", "wall"), ("alpha:measure", "wall")]


async def test_a_refused_or_failed_call_is_not_learned(setup: LearningSetup, lessons: Class) -> None:
    """A gate, a server that fails, an answer that says `isError`; what was found stays to be called."""
    await setup.search("wall")
    with pytest.raises(ProxyError):
        await setup.call("alpha:paint", variant="read")
    with pytest.raises(ProxyError):
        await setup.call("alpha:paint", digest="sha256:0000000000000000")
    for answer in (UpstreamError("gone"), b'{"content":[],"isError":true}'):
        setup.alpha.answer = answer
        if isinstance(answer, bytes):
            await setup.call("alpha:paint")
        else:
            with pytest.raises(UpstreamError):
                await setup.call("alpha:paint")
    assert lessons.learned == []
    setup.alpha.answer = b'{"content":[]}'
    await setup.call("alpha:paint")
    assert lessons.learned == [("alpha:paint", "wall")]


@pytest.mark.parametrize(
    ("query", "more"), [("alpha:paint", ()), ("alpha__paint", ()), ("paint", ()), ("wall", ("measure a wall",))]
)
async def test_nothing_is_learned_from_names_and_from_several_queries_at_once(
    setup: LearningSetup, lessons: Class, query: str, more: tuple[str, ...]
) -> None:
    """A name is found without help, and of several queries it is not known which one led to the tool."""
    await setup.search(query, more_queries=more)
    await setup.call("alpha:paint")
    assert lessons.learned == []


async def test_a_tool_that_was_found_but_not_sent_teaches_nothing(
    setup: LearningSetup, lessons: Class, parts: Parts
) -> None:
    """Only the tools in the answer count: what did not fit into it was not chosen from it."""
    tools = [definition(f"wall_{number}", "Wall. " + "x" * 1_500) for number in range(6)]
    await parts.sync("alpha", tools)
    answer = await setup.retrieval.retrieve(Question("wall", 6, detail="full", session="s1"))
    unsent = {f"alpha:wall_{number}" for number in range(6)} - {tool["name"] for tool in answer["tools"]}
    assert unsent
    for name in unsent:
        await setup.call(name)
    assert lessons.learned == []


class Watched(Bm25fEngine):
    """An engine that shows the documents it was last given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, Document] = {}

    def update(self, added: Any, removed: Any) -> None:
        documents = list(added)
        self.seen |= {document.id: document for document in documents}
        super().update(documents, removed)


@pytest.mark.parametrize(("is_on", "examples"), [(True, ("daub the wall",)), (False, ())])
async def test_lessons_reach_the_index_off_the_call_path(parts: Parts, is_on: bool, examples: tuple[str, ...]) -> None:
    """In this process at once; where learning is off, what was learned before is not searched with."""
    engine = Watched()
    index, sees = SearchIndex(engine), parts.visible.sees
    work = ToolWork(FakeFleet(), parts.catalog, index, sees, follow_s=3600, uses_examples=is_on)
    await parts.catalog.sync("alpha", [definition("paint")])
    work.index_sync.start()

    async def store(batch: Any) -> None:
        await parts.catalog.learn(batch)
        await work.index_sync.follow()

    try:
        async with Recorder(store, batch_s=0, noun="lessons") as recorder:
            learning = Learning(recorder.record)
            for _ in range(2):
                learning.record_search("ann", None, "daub the wall", [PAINT])
                learning.learn_from_call("ann", None, PAINT)
            with anyio.fail_after(20):
                while not parts.catalog.snapshot.by_key[PAINT].examples:
                    await work.changes.wait()
    finally:
        await work.close()
    assert [document.examples for document in engine.seen.values()] == [examples]


async def test_a_lesson_has_the_time_by_the_store_s_clock(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways on one store have clocks of their own, and the question that was used least recently leaves first."""
    await parts.sync("alpha", [definition("paint")])
    monkeypatch.setattr(parts.catalog, "_clock", lambda: 5.0)
    sync = ToolWork(FakeFleet(), parts.catalog, parts.index, parts.visible.sees).index_sync
    sync.loaded.set()
    async with open_learning(parts.catalog, sync, parts.clock) as learning:
        learning.record_search("ann", None, "daub the wall", [PAINT])
        learning.learn_from_call("ann", None, PAINT)
    assert [one.last_used_s for one in await parts.catalog.read_examples(PAINT)] == [5.0]


async def test_forgetting_takes_either_name_and_any_wording(parts: Parts) -> None:
    """A name that the catalog does not know, and a question without a word, are errors that say so."""
    await parts.sync("alpha", [definition("paint")])
    lesson = Lesson(PAINT, "daub a wall", normalize_wording("daub a wall"), 1.0)
    for name, question, count in [
        ("alpha:paint", None, 1),
        ("alpha__paint", "Daub the WALLS", 1),
        ("alpha:paint", "close the window", 0),
        (None, None, 1),
    ]:
        await parts.catalog.learn([lesson])
        assert await forget_examples(parts.catalog, name, question) == count
    with pytest.raises(ToolNotFoundError, match="'alpha:nothing'"):
        await forget_examples(parts.catalog, "alpha:nothing", None)
    with pytest.raises(RequestError, match="holds no word"):
        await forget_examples(parts.catalog, None, "?!")
