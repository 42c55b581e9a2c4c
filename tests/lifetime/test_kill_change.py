"""kill -9 in the middle of a change of model: the former vectors rank at the next start too, and nothing is lost."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from embedding_fakes import EmbeddingService, Reply, good
from worlds import DEADLINE_S, ENVIRON, Client, SmallServer, connected, until

pytestmark = [pytest.mark.anyio, pytest.mark.long]

TOOLS = ["echo", *(f"tool_{number}" for number in range(60))]
HELD_UP_BATCH = 3
"""A service that waits with the third batch has answered the first two, and they are stored."""


class Held:
    """A service that holds up what is embedded of tools with the model `two`.

    Attributes:
        may_go: Ends that.
        batches: How many came, the one that it holds up included.
    """

    def __init__(self, service: EmbeddingService) -> None:
        self.service = service
        self.may_go = threading.Event()
        self.batches = 0
        service.usual = self._answer

    def asked(self, model: str) -> list[Sequence[str]]:
        """What came for a model, request by request."""
        return [request.body["input"] for request in self.service.requests if request.body["model"] == model]

    def embedded(self) -> list[str]:
        """The texts of tools that came for the model `two`, those that it holds up included."""
        return [text for texts in self.asked("two") if texts[0].startswith("up. ") for text in texts]

    def _answer(self, texts: Sequence[str]) -> Reply:
        if texts[0].startswith("up. ") and texts in self.asked("two"):
            self.batches += 1
            if self.batches >= HELD_UP_BATCH and not self.may_go.wait(60):
                return Reply(500)
        return good(texts)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """The service, and its address in the environment of gateways."""
    with EmbeddingService() as service:
        monkeypatch.setitem(ENVIRON, "OPENAI_API_KEY", "sk-secret")
        monkeypatch.setitem(ENVIRON, "OPENAI_BASE_URL", service.url)
        held = Held(service)
        yield held
        held.may_go.set()


def views(name: str) -> tuple[str, ...]:
    """What is embedded of a tool."""
    return f"up. {name}", f"Does {name}.", f"up. {name}. Does {name}."


async def degraded(client: Client, is_awaited: Callable[[list[str]], bool]) -> dict[str, Any]:
    """The first search with such reasons."""
    async with asyncio.timeout(DEADLINE_S):
        while not is_awaited((found := await client.search())["degraded"]):
            await asyncio.sleep(0.05)
    return found


async def test_kill_in_the_middle_of_a_change_of_model(tmp_path: Path, held: Held) -> None:
    """A tool that comes meanwhile is found; what was made is not made again, and in the end the new vectors rank."""
    small = SmallServer(tmp_path / "world")
    (small.directory / "tools").write_text("\n".join(TOOLS))
    data_dir = tmp_path / "data"
    async with connected(data_dir, small, EMBEDDER="OPENAI", OPENAI_MODEL="one") as client:
        await degraded(client, lambda reasons: not reasons)
        os.kill(client.process.pid, signal.SIGKILL)

    def is_former(reasons: list[str]) -> bool:
        return len(reasons) == 1 and "embedding tools: 48 of" in reasons[0] and ":one:4:views' rank until" in reasons[0]

    async with connected(data_dir, small, EMBEDDER="OPENAI", OPENAI_MODEL="two") as client:
        await until(lambda: held.batches == HELD_UP_BATCH)
        await degraded(client, is_former)
        os.kill(client.process.pid, signal.SIGKILL)
    held_up = len(held.asked("two")[-1])
    made, broken_off = held.embedded()[:-held_up], held.embedded()[-held_up:]
    assert len(made) == 3 * 48

    (small.directory / "tools").write_text("\n".join([*TOOLS, "letter"]))
    async with connected(data_dir, small, EMBEDDER="OPENAI", OPENAI_MODEL="two") as client:
        await degraded(client, is_former)
        assert held.asked("one")[-1] == ["does echo"]
        result = await client.result(client.call("retrieve_tools", {"query": "letter", "limit": 1}))
        assert result["structuredContent"]["tools"][0]["name"] == "up:letter"
        held.may_go.set()
        await degraded(client, lambda reasons: not reasons)
        await client.search()  # the one before may have begun while the former vectors still ranked
    assert held.asked("two")[-1] == ["does echo"]
    assert sorted(held.embedded()) == sorted([*made, *broken_off, *broken_off, *views("letter")])
