"""Vectors for every tool: made once, kept, shared between processes, and searched with when all are there."""

import logging
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import numpy as np
import pytest
from gateway_fakes import HandClock
from keeper_fakes import NEVER_S, PACE, EmbeddingSetup, WordEmbedder, opened_setup, vector_of

from smart_mcp_proxy.catalog import DATABASE_NAME
from smart_mcp_proxy.errors import EmbeddingError, MissingExtraError
from smart_mcp_proxy.gateway.indexing.embedding import EmbeddingPace
from smart_mcp_proxy.search.embedding import Embedder, build_embedding_text
from smart_mcp_proxy.search.vectors.sidecar import SIDECAR_NAME, load

pytestmark = pytest.mark.anyio

TOOLS = ("read_file", "write_file", "send_mail")


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


def given(embedder: Embedder) -> Callable[[], Embedder]:
    """Opens this embedder."""
    return lambda: embedder


def check(setup: EmbeddingSetup) -> None:
    """Every tool has the vector of its own text."""
    linked = setup.linked()
    texts = {tool.name: build_embedding_text(tool) for tool in setup.index.documents.values()}
    assert linked.keys() == texts.keys()
    assert all((linked[name] == vector_of(text)).all() for name, text in texts.items())


def stored_rows(data_dir: Path) -> int:
    with closing(sqlite3.connect(data_dir / DATABASE_NAME)) as file:
        count: int = file.execute("SELECT count(*) FROM vectors").fetchone()[0]
    return count


async def run_once(data_dir: Path, embedder: WordEmbedder, *names: str) -> list[str]:
    """What is embedded from one start to its end, the tools being `names`, or those that are stored."""
    before = len(embedder.texts)
    async with opened_setup(data_dir, given(embedder), *names) as setup:
        await setup.ranking()
        check(setup)
    return embedder.texts[before:]


async def test_vectors_rank_when_every_tool_has_one(tmp_path: Path, embedder: WordEmbedder) -> None:
    """Until then words rank, and every answer says how far it is."""
    embedder.gate.clear()
    async with opened_setup(tmp_path, given(embedder), *TOOLS) as setup:
        assert setup.embedding.degradations == ("the embedding model is being opened, words alone rank until then",)
        assert setup.embedding.progress is None
        await setup.until(embedder.busy.is_set)
        assert setup.embedding.degradations == ("embedding tools: 0 of 3, words alone rank until then",)
        assert setup.embedding.progress == (0, 3)
        assert setup.index.engine.name == "bm25f"
        embedder.gate.set()
        await setup.ranking()
        assert setup.index.engine.name == "switched"
        assert setup.embedding.progress == (3, 3)
        check(setup)
    assert len(embedder.texts) == 3


async def test_tools_that_come_first_after_the_start_are_waited_for(tmp_path: Path, embedder: WordEmbedder) -> None:
    """An empty catalog is not worth a switch, and is nothing to complain of."""
    async with opened_setup(tmp_path, given(embedder)) as setup:
        await setup.until(lambda: not setup.embedding.degradations)
        assert not setup.embedding.is_ranking
        await setup.listed(*TOOLS)
        await setup.ranking()
        check(setup)


async def test_nothing_is_embedded_again_after_a_restart(tmp_path: Path, embedder: WordEmbedder) -> None:
    """The side-car has it; without it the catalog; and after both are lost the embedder is asked again."""
    assert len(await run_once(tmp_path, embedder, *TOOLS)) == 3
    assert (tmp_path / SIDECAR_NAME).exists()
    assert await run_once(tmp_path, embedder) == []
    (tmp_path / SIDECAR_NAME).unlink()
    assert await run_once(tmp_path, embedder) == []
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as file:
        file.execute("DELETE FROM vectors")
        file.commit()
    assert await run_once(tmp_path, embedder) == []
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as file:
        file.execute("DELETE FROM vectors")
        file.commit()
    (tmp_path / SIDECAR_NAME).unlink()
    assert len(await run_once(tmp_path, embedder)) == 3


async def test_a_side_car_of_another_time_brings_no_wrong_vectors(tmp_path: Path, embedder: WordEmbedder) -> None:
    """Ids that belong to other tools now get their own vectors."""
    await run_once(tmp_path / "a", embedder, *TOOLS)
    await run_once(tmp_path / "b", embedder, "list_users", "read_file")
    shutil.copy(tmp_path / "a" / SIDECAR_NAME, tmp_path / "b" / SIDECAR_NAME)
    assert await run_once(tmp_path / "b", embedder) == []


async def test_another_embedder_builds_beside_the_first_ones_vectors(tmp_path: Path, embedder: WordEmbedder) -> None:
    """Words rank meanwhile, and every answer says so; on the way back nothing is embedded again."""
    other = WordEmbedder("words:2")
    await run_once(tmp_path, embedder, *TOOLS)
    other.gate.clear()
    async with opened_setup(tmp_path, given(other)) as setup:
        await setup.until(other.busy.is_set)
        assert setup.index.engine.name == "bm25f"
        assert setup.embedding.degradations == ("embedding tools: 0 of 3, words alone rank until then",)
        other.gate.set()
        await setup.ranking()
    assert len(other.texts) == 3
    assert await run_once(tmp_path, other) == []
    assert stored_rows(tmp_path) == 6
    assert await run_once(tmp_path, embedder) == []
    assert await run_once(tmp_path, other) == []


async def test_only_what_changed_is_embedded(tmp_path: Path, embedder: WordEmbedder) -> None:
    """Meanwhile words find it, vectors rank the others, and every answer says so."""
    async with opened_setup(tmp_path, given(embedder), *TOOLS) as setup:
        await setup.ranking()
        embedder.gate.clear()
        embedder.busy.clear()
        await setup.listed("read_file", "write_file", send_mail="Sends a letter.")
        await setup.until(embedder.busy.is_set)
        assert setup.embedding.degradations == (
            "embedding tools: 2 of 3, the others are found by their words until then",
        )
        assert setup.linked().keys() == {"read_file", "write_file"}
        assert [hit.score > 0 for hit in setup.index.search("letter", limit=1).hits] == [True]
        embedder.gate.set()
        await setup.ranking()
        check(setup)
        assert len(embedder.texts) == 4
        await setup.listed("read_file", send_mail="Sends a letter.")
        await setup.until(lambda: "write_file" not in setup.linked())
        await setup.listed("read_file", "write_file", send_mail="Sends a letter.")
        await setup.ranking()
        check(setup)
    assert len(embedder.texts) == 4


async def test_a_tool_that_changes_while_it_is_embedded_gets_its_new_vector(
    tmp_path: Path, embedder: WordEmbedder
) -> None:
    """The vector that comes too late is stored, but not used."""
    embedder.gate.clear()
    async with opened_setup(tmp_path, given(embedder), *TOOLS) as setup:
        await setup.until(embedder.busy.is_set)
        await setup.listed("read_file", "write_file", send_mail="Sends a letter.")
        embedder.gate.set()
        await setup.ranking()
        check(setup)
    assert len(embedder.texts) == 4


async def test_two_processes_embed_each_definition_once(tmp_path: Path) -> None:
    """Whoever comes second reads what the first has stored."""
    first, second = WordEmbedder(), WordEmbedder()
    names = [f"tool_{number}" for number in range(150)]
    async with (
        opened_setup(tmp_path, given(first), *names) as setup,
        opened_setup(tmp_path, given(second), *names) as other,
    ):
        await setup.ranking()
        await other.ranking()
        check(setup)
        check(other)
        assert len(first.texts) + len(second.texts) == len({*first.texts, *second.texts}) == 150


async def test_a_second_process_waits_while_the_first_embeds(tmp_path: Path) -> None:
    """It is ready as soon as the first is, and has asked for nothing."""
    first, second = WordEmbedder(), WordEmbedder()
    first.gate.clear()
    async with opened_setup(tmp_path, given(first), *TOOLS) as setup:
        await setup.until(first.busy.is_set)
        async with opened_setup(tmp_path, given(second)) as other:
            await other.until(lambda: len(other.slept_s) > 2)
            assert other.embedding.degradations == ("embedding tools: 0 of 3, words alone rank until then",)
            first.gate.set()
            await other.ranking()
            check(other)
    assert second.texts == []


async def test_a_failing_embedder_is_tried_again_and_again(
    tmp_path: Path, embedder: WordEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    """Later and later, as it asks for; what it made before is not made again, and every answer names the reason."""
    names = [f"tool_{number}" for number in range(40)]
    failure = EmbeddingError("The service is down.", hint="Try later.")
    async with opened_setup(tmp_path, given(embedder)) as setup:
        setup.is_awake.clear()
        await setup.until(lambda: not setup.embedding.degradations)
        embedder.errors = [failure, EmbeddingError("Slowly.", retry_after_s=70), failure]
        await setup.listed(*names)
        await setup.until(lambda: bool(setup.slept_s))
        assert setup.embedding.degradations == (
            "embedding tools: 0 of 40, words alone rank until then",
            "embedding failed: The service is down. Try later.",
        )
        setup.is_awake.set()
        await setup.ranking()
        check(setup)
    first, second, third = setup.slept_s
    assert 0.25 <= first <= 0.5
    assert second == 70
    assert 1 <= third <= 2
    assert len(embedder.texts) == len(set(embedder.texts)) == 40
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "The service is down. Try later." in warnings[0]


async def test_one_text_that_fails_does_not_hold_up_the_others(tmp_path: Path, embedder: WordEmbedder) -> None:
    """They come first; it is tried on its own in between, and gets its vector when it works."""
    embedder.bad = "poison"
    async with opened_setup(tmp_path, given(embedder), "poison", *(f"tool_{n}" for n in range(100))) as setup:
        await setup.until(lambda: len(embedder.texts) == 100)
        await setup.until(lambda: setup.embedding.degradations[0].startswith("embedding tools: 100 of 101"))
        assert not setup.embedding.is_ranking
        embedder.bad = ""
        await setup.ranking()
        check(setup)
    assert len(embedder.texts) == 101


@pytest.mark.parametrize("rows", [np.zeros((3, 32)), np.full((3, 32), np.nan), np.eye(32)[:2], np.eye(31)[:3]])
async def test_an_answer_that_is_no_vectors_is_a_failure(
    tmp_path: Path, embedder: WordEmbedder, rows: np.typing.NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is stored."""
    monkeypatch.setattr(embedder, "embed", lambda texts: rows.astype(np.float32))
    async with opened_setup(tmp_path, given(embedder), *TOOLS) as setup:
        await setup.until(lambda: bool(setup.slept_s))
        assert "'words:1' answered 3 texts" in setup.embedding.degradations[1]
        monkeypatch.undo()
        await setup.ranking()
        check(setup)
    assert stored_rows(tmp_path) == 3


async def test_a_missing_package_leaves_words_in_charge(tmp_path: Path) -> None:
    """And every answer says what to install."""

    def open_embedder() -> Embedder:
        raise MissingExtraError("MCPPROXY_EMBEDDER=HF needs x. Install it: pip install x", hint="More.")

    async with opened_setup(tmp_path, open_embedder, *TOOLS) as setup:
        said = ("MCPPROXY_EMBEDDER=HF needs x. Install it: pip install x; until then words alone rank",)
        await setup.until(lambda: setup.embedding.degradations == said)
        assert setup.index.engine.name == "bm25f"


async def test_an_embedder_that_does_not_open_is_tried_again(tmp_path: Path, embedder: WordEmbedder) -> None:
    """A service may be down for a while at the start."""
    errors = [EmbeddingError("No network."), EmbeddingError("No network.")]

    def open_embedder() -> Embedder:
        if errors:
            raise errors.pop()
        return embedder

    async with opened_setup(tmp_path, open_embedder, *TOOLS) as setup:
        await setup.ranking()
        assert len(setup.slept_s) == 2
        check(setup)


async def test_an_error_of_ours_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The gateway goes on with words; the log has the trace."""

    def open_embedder() -> Embedder:
        raise ZeroDivisionError

    async with opened_setup(tmp_path, open_embedder, *TOOLS) as setup:
        await setup.until(lambda: "error of ours" in setup.embedding.degradations[0])
        await setup.until(lambda: any(record.exc_info for record in caplog.records))


async def test_without_storage_vectors_live_in_memory(tmp_path: Path, embedder: WordEmbedder) -> None:
    """Nothing is made twice meanwhile; a new file gets them all."""
    async with opened_setup(tmp_path, given(embedder), *TOOLS) as setup:
        await setup.ranking()
        tmp_path.rename(f"{tmp_path}-gone")  # at once, whatever is being written in it
        tmp_path.write_text("in the way")
        await setup.listed(*TOOLS, "fourth")
        await setup.ranking()
        check(setup)
        assert setup.catalog.problem is not None
        assert len(embedder.texts) == 4
        tmp_path.unlink()
        await setup.until(lambda: setup.catalog.problem is None)
        await setup.until(lambda: stored_rows(tmp_path) == 4)
        await setup.ranking()
        check(setup)


async def test_a_damaged_stored_vector_is_made_again(tmp_path: Path, embedder: WordEmbedder) -> None:
    """And replaced."""
    await run_once(tmp_path, embedder, *TOOLS)
    (tmp_path / SIDECAR_NAME).unlink()
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as file:
        file.execute("UPDATE vectors SET vector = zeroblob(128) WHERE rowid = 2")
        file.commit()
    assert len(await run_once(tmp_path, embedder)) == 1
    (tmp_path / SIDECAR_NAME).unlink()
    assert await run_once(tmp_path, embedder) == []


async def test_the_side_car_is_written_when_it_is_calm(tmp_path: Path, embedder: WordEmbedder) -> None:
    """Not with every change."""
    clock = HandClock()
    pace = EmbeddingPace(look_s=PACE.look_s, poll_s=PACE.poll_s, settle_s=5.0)
    path = tmp_path / SIDECAR_NAME
    async with opened_setup(tmp_path, given(embedder), *TOOLS, pace=pace, clock=clock) as setup:
        await setup.ranking()
        for count in range(4):
            clock.now_s += 4
            await setup.listed(*TOOLS, f"more_{count}")
            await setup.ranking()
        assert not path.exists()

        def is_written_later() -> bool:
            clock.now_s += 5
            return path.exists()

        await setup.until(is_written_later)
        found = load(path, embedder.id, embedder.dimension)
        assert found is not None
        assert len(found.ids) == 4


async def test_the_end_waits_for_a_batch_under_way(tmp_path: Path, embedder: WordEmbedder) -> None:
    """It is stored: the next start does not pay for it again."""
    embedder.gate.clear()
    async with opened_setup(tmp_path, given(embedder), *TOOLS) as setup:
        await setup.until(embedder.busy.is_set)
        async with anyio.create_task_group() as group:
            group.start_soon(setup.embedding.close)
            await anyio.wait_all_tasks_blocked()
            embedder.gate.set()
    assert await run_once(tmp_path, embedder) == []


async def test_the_end_does_not_wait_for_ever(tmp_path: Path, embedder: WordEmbedder) -> None:
    """An embedder that hangs is left behind."""
    embedder.gate.clear()
    pace = EmbeddingPace(close_s=0.01, look_s=NEVER_S)
    with anyio.fail_after(20):
        async with opened_setup(tmp_path, given(embedder), *TOOLS, pace=pace) as setup:
            await setup.until(embedder.busy.is_set)
    embedder.gate.set()


async def test_the_log_tells_of_progress(
    tmp_path: Path, embedder: WordEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    """A line now and then with the rate and the time left, and one at the end with counts and seconds."""
    clock = HandClock()
    inner = embedder.embed

    def slowly(texts: list[str]) -> object:
        clock.now_s += 3
        return inner(texts)

    embedder.embed = slowly  # type: ignore[assignment,method-assign]
    names = [f"tool_{number}" for number in range(60)]
    with caplog.at_level(logging.INFO, "mcpproxy.embedding"):
        async with opened_setup(tmp_path, given(embedder), *names, clock=clock) as setup:
            await setup.ranking()
    lines = [record.getMessage() for record in caplog.records if record.name == "mcpproxy.embedding"]
    assert lines[-1] == "vectors of 'words:1' rank 60 tools"
    assert "60 tools embedded in" in lines[-2]
    progress = [line for line in lines if line.startswith("embedding tools: ")]
    assert 2 <= len(progress) < len(embedder.texts) / 2
    assert progress[0] == "embedding tools: 16 of 60, 4/s, about 11 s left, words alone rank until then"
