"""Sessions of the handshake era over several workers, as many as a busy gateway has."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from test_workers import Session, message, served

pytestmark = [pytest.mark.anyio, pytest.mark.soak]

SESSIONS, AT_ONCE = 2_000, 8


async def test_two_thousand_sessions_are_found_at_two_workers(tmp_path: Path) -> None:
    """Each is asked twice, on new connections, once all are open; both workers keep a good part of them."""
    statuses: Counter[int] = Counter()
    free = asyncio.Semaphore(AT_ONCE)

    async def opened(url: str) -> Session:
        async with free:
            return await Session.open(url)

    async def ask(session: Session) -> None:
        async with free:
            statuses[(await session.post(message("ping", {}))).status_code] += 1

    async with served(tmp_path, MAX_SESSIONS=f"{2 * SESSIONS}") as gateway:
        sessions = await asyncio.gather(*(opened(gateway.url) for _ in range(SESSIONS)))
        for _ in range(2):
            await asyncio.gather(*map(ask, sessions))
    assert len({session.id for session in sessions}) == SESSIONS
    held = Counter(session.worker for session in sessions)
    print(f"sessions by worker: {dict(held)}; answers: {dict(statuses)}")
    assert statuses == {200: 2 * SESSIONS}
    assert min(held[0], held[1]) > SESSIONS // 10
