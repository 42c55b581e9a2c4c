"""A change of model: the former one's vectors rank until the new ones are complete, where it still opens."""

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from keeper_fakes import EmbeddingSetup, WordEmbedder, gone, opened_setup, vector_of

from smart_mcp_proxy.errors import EmbeddingError, MissingExtraError
from smart_mcp_proxy.search.embedding import Embedder, build_embedding_text
from smart_mcp_proxy.search.vectors.sidecar import SIDECAR_NAME

pytestmark = pytest.mark.anyio

TOOLS = ("read_file", "write_file", "send_mail")
FORMERLY = "vectors of 'words:1' rank until then"


@pytest.fixture
def former() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def chosen() -> WordEmbedder:
    """Waits with the first texts."""
    embedder = WordEmbedder("words:2")
    embedder.gate.clear()
    return embedder


def given(*embedders: Embedder) -> Callable[..., Embedder]:
    """Opens the embedder with this id, or the only one."""
    by_id = {embedder.id: embedder for embedder in embedders}
    return lambda id=embedders[0].id: by_id[id] if id in by_id else gone(id)


async def run_once(data_dir: Path, embedder: WordEmbedder, *names: str) -> None:
    """The tools `names`, or those that are stored, have all got their vectors."""
    async with opened_setup(data_dir, given(embedder), *names) as setup:
        await setup.ranking()


def ranks(setup: EmbeddingSetup) -> Embedder | None:
    """Whose vectors rank; None where words do."""
    return getattr(setup.index.engine, "embedder", None)


def check(setup: EmbeddingSetup, *without: str) -> None:
    """Every tool has the vector of its own text, but for some."""
    texts = {
        tool.name: build_embedding_text(tool) for tool in setup.index.documents.values() if tool.name not in without
    }
    linked = setup.linked()
    assert linked.keys() == texts.keys()
    assert all((linked[name] == vector_of(text)).all() for name, text in texts.items())


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("has_sidecar", [True, False])
async def test_the_former_vectors_rank_until_the_new_ones_are_there(
    tmp_path: Path, former: WordEmbedder, chosen: WordEmbedder, has_sidecar: bool
) -> None:
    """Every answer says so; then the former embedder is let go."""
    await run_once(tmp_path, former, *TOOLS)
    if not has_sidecar:
        (tmp_path / SIDECAR_NAME).unlink()
    reopened = WordEmbedder()
    trace = weakref.ref(reopened)
    async with opened_setup(tmp_path, given(chosen), reopen_embedder=given(reopened)) as setup:
        del reopened
        await setup.until(chosen.busy.is_set)
        assert ranks(setup) is trace() is not None
        check(setup)
        assert setup.embedding.degradations == (f"embedding tools: 0 of 3, {FORMERLY}",)
        assert setup.embedding.progress == (0, 3)
        assert not setup.embedding.is_complete
        chosen.gate.set()
        await setup.ranking()
        assert ranks(setup) is chosen
        check(setup)
    del setup
    gc.collect()
    assert trace() is None
    assert len(chosen.texts) == 3


async def test_tools_that_come_and_change_meanwhile_are_found_by_their_words(
    tmp_path: Path, former: WordEmbedder, chosen: WordEmbedder
) -> None:
    """The former embedder makes no vector more, and the new one each of them once."""
    await run_once(tmp_path, former, *TOOLS)
    async with opened_setup(tmp_path, given(chosen), reopen_embedder=given(former)) as setup:
        await setup.until(chosen.busy.is_set)
        await setup.listed("read_file", "write_file", send_mail="Sends a letter.", resize_image="Makes it smaller.")
        assert ranks(setup) is former
        for query, name in (("letter", "send_mail"), ("resize", "resize_image"), ("write", "write_file")):
            assert [setup.index.documents[hit.id].name for hit in setup.index.search(query, limit=1).hits] == [name]
        chosen.gate.set()
        await setup.ranking()
        assert ranks(setup) is chosen
        check(setup)
    assert len(former.texts) == 3
    assert len(chosen.texts) == len(set(chosen.texts)) == 5


@pytest.mark.long  # a third of a second of processor time
async def test_a_change_that_is_broken_off_goes_on_at_the_next_start(
    tmp_path: Path, former: WordEmbedder, chosen: WordEmbedder
) -> None:
    """With the former vectors again, and with those that were made."""
    names = [f"tool_{number}" for number in range(40)]
    await run_once(tmp_path, former, *names)
    chosen.gate.set()
    chosen.bad = "tool 39"
    said = f"embedding tools: 39 of 40, {FORMERLY}"
    for _ in range(2):
        async with opened_setup(tmp_path, given(chosen), reopen_embedder=given(former)) as setup:
            await setup.until(lambda setup=setup: said in setup.embedding.degradations)  # type: ignore[misc]
            assert ranks(setup) is former
            check(setup)
    chosen.bad = ""
    async with opened_setup(tmp_path, given(chosen), reopen_embedder=given(former)) as setup:
        await setup.ranking()
        check(setup)
    assert len(chosen.texts) == len(set(chosen.texts)) == 40


async def test_the_former_vectors_rank_while_the_chosen_embedder_does_not_open(
    tmp_path: Path, former: WordEmbedder, chosen: WordEmbedder
) -> None:
    """The answer names the reason; once it opens the change begins."""
    await run_once(tmp_path, former, *TOOLS)
    errors = [EmbeddingError("No network.")]

    def open_embedder() -> Embedder:
        if errors:
            raise errors[0]
        return chosen

    async with opened_setup(tmp_path, open_embedder, reopen_embedder=given(former)) as setup:
        await setup.until(lambda: len(setup.embedding.degradations) == 2)
        assert setup.embedding.degradations == (
            f"the embedding model is being opened, {FORMERLY}",
            "embedding failed: No network.",
        )
        assert ranks(setup) is former
        errors.clear()
        await setup.until(chosen.busy.is_set)
        assert ranks(setup) is former
        chosen.gate.set()
        await setup.ranking()
        check(setup)


async def test_packages_that_are_missing_in_the_end_leave_the_former_vectors_in_charge(
    tmp_path: Path, former: WordEmbedder
) -> None:
    """As far as they ranked before."""
    await run_once(tmp_path, former, *TOOLS)
    errors = [MissingExtraError("MCPPROXY_EMBEDDER=OPENAI needs openai."), EmbeddingError("No network.")]

    def open_embedder() -> Embedder:
        raise errors.pop()

    async with opened_setup(tmp_path, open_embedder, reopen_embedder=given(former)) as setup:
        await setup.until(lambda: setup.embedding.is_stopped)
        assert setup.embedding.degradations == (
            "MCPPROXY_EMBEDDER=OPENAI needs openai.; until then vectors of 'words:1' rank",
        )
        assert ranks(setup) is former


@pytest.mark.parametrize("opens", ["words:2", "words:1"])
async def test_of_several_former_embedders_the_one_that_opens_ranks(
    tmp_path: Path, former: WordEmbedder, chosen: WordEmbedder, opens: str
) -> None:
    """The one that was used last comes first."""
    chosen.gate.set()
    await run_once(tmp_path, former, *TOOLS)
    await run_once(tmp_path, chosen)
    third = WordEmbedder("words:3")
    third.gate.clear()
    both = [embedder for embedder in (former, chosen) if embedder.id == opens or opens == "words:2"]
    async with opened_setup(tmp_path, given(third), reopen_embedder=given(*both)) as setup:
        await setup.until(third.busy.is_set)
        assert setup.embedding.degradations == (f"embedding tools: 0 of 3, vectors of '{opens}' rank until then",)
        third.gate.set()


async def test_vectors_of_few_tools_do_not_rank(tmp_path: Path, former: WordEmbedder, chosen: WordEmbedder) -> None:
    """Neither fewer than of half the tools, nor fewer than are made by now."""
    reopened: list[str] = []

    def reopen(id: str) -> Embedder:
        reopened.append(id)
        return former

    await run_once(tmp_path, former, "read_file")
    async with opened_setup(tmp_path, given(chosen), *TOOLS, reopen_embedder=reopen) as setup:
        await setup.until(chosen.busy.is_set)
        assert setup.embedding.degradations == ("embedding tools: 0 of 3, words alone rank until then",)
        chosen.gate.set()
        await setup.ranking()
    await run_once(tmp_path, former)
    (tmp_path / SIDECAR_NAME).unlink()
    async with opened_setup(tmp_path, given(chosen), *TOOLS, "fourth", reopen_embedder=reopen) as setup:
        await setup.ranking()
    assert reopened == []


async def test_without_storage_words_rank(tmp_path: Path, former: WordEmbedder, chosen: WordEmbedder) -> None:
    """Nobody knows then what was embedded before; the new vectors are made in memory."""
    await run_once(tmp_path, former, *TOOLS)
    was_removed = threading.Event()

    def open_embedder() -> Embedder:
        was_removed.wait()
        return chosen

    async with opened_setup(tmp_path, open_embedder, reopen_embedder=given(former)) as setup:
        await setup.until(lambda: len(setup.index) == 3)
        tmp_path.rename(f"{tmp_path}-gone")  # at once, whatever is being written in it
        tmp_path.write_text("in the way")
        was_removed.set()
        await setup.until(chosen.busy.is_set)
        assert setup.embedding.degradations == ("embedding tools: 0 of 3, words alone rank until then",)
        chosen.gate.set()
        await setup.ranking()
        check(setup)
    tmp_path.unlink()
