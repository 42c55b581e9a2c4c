"""Gateways under gateways: each knows whom it runs under, and what others say of themselves is read with care."""

from pathlib import Path
from typing import Any

import pytest

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.names import GATEWAYS_CAPABILITY
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream.protocol.loop_detection import STARTED_BY, Lineage, gateways_behind, mark_environment

pytestmark = pytest.mark.anyio

CONFIG = ServerConfig("next", "http", url="http://127.0.0.1:9/mcp")
OTHER = "0123456789abcdef"


class Session:
    """As much of a session as is needed."""

    def __init__(self, *ids: Any) -> None:
        self.capabilities = said(list(ids))
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


def said(ids: Any) -> dict[str, Any]:
    """The capabilities of a gateway that says this of itself and those behind it."""
    return {"experimental": {GATEWAYS_CAPABILITY: {"ids": ids}}}


async def opened(lineage: Lineage, session: Session) -> Any:
    """The session, where the gateway takes it."""

    async def open_session(config: ServerConfig, **options: Any) -> Any:
        return session

    return await lineage.open(open_session, CONFIG)


async def test_every_gateway_is_one_of_its_own() -> None:
    """However often it is started beside itself."""
    assert len({Lineage({}).instance, Lineage({}).instance, Lineage(mark_environment({}, None)).instance}) == 3


async def test_a_child_with_another_file_is_another_gateway(tmp_path: Path) -> None:
    """It may have servers, as long as they lead neither to it nor to one above."""
    top = mark_environment({}, tmp_path / "top.json")
    below = Lineage(mark_environment(top, tmp_path / "below.json"))
    assert below.instance != Lineage(top).instance
    assert await opened(below, Session(OTHER))
    for back in (below.instance, Lineage(top).instance):
        session = Session(OTHER, back)
        with pytest.raises(UpstreamError, match="Server 'next' leads back to this gateway"):
            await opened(below, session)
        assert session.is_closed


async def test_a_child_with_the_same_file_is_the_same_gateway(tmp_path: Path) -> None:
    """By whatever path the file is named, and however many stand between; it connects nothing."""
    file = tmp_path / "top.json"
    file.touch()
    (tmp_path / "session.json").symlink_to(file)
    top = mark_environment({}, file)
    again = Lineage(mark_environment(mark_environment(top, tmp_path / "below.json"), tmp_path / "session.json"))
    assert again.instance == Lineage(top).instance
    with pytest.raises(UpstreamError, match=r"'next' is not started: .* the same configuration file") as caught:
        await opened(again, Session())
    assert "MCPPROXY_CONFIG_PATH" in caught.value.hint


async def test_gateways_without_end_end(tmp_path: Path) -> None:
    """Where each has a file of its own, made for it."""
    environ: dict[str, str] = {}
    for number in range(9):
        environ = mark_environment(environ, tmp_path / f"{number}.json")
        deepest = Lineage(environ)
        if number < 8:
            assert await opened(deepest, Session())
    with pytest.raises(UpstreamError, match="runs under 8 others already, and at most 8 are accepted"):
        await opened(deepest, Session())


@pytest.mark.parametrize("odd", [None, 7, "x", {}, [None, 7, {}, "", "x" * 16, OTHER + "0", OTHER.upper()]], ids=str)
async def test_what_a_server_says_of_itself_is_read_with_care(odd: Any) -> None:
    """An odd word leads nowhere, and is not passed on."""
    assert not gateways_behind(said(odd))
    assert not gateways_behind({"experimental": {GATEWAYS_CAPABILITY: odd}})
    assert not gateways_behind({"experimental": odd})


async def test_a_gateway_names_itself_first_and_only_so_many_others() -> None:
    """What a server claims is bounded, and what is passed on likewise."""
    lineage = Lineage({})
    crowds = [said([f"{crowd:08x}{number:08x}" for number in range(1_000)]) for crowd in range(3)]
    known = lineage.list_gateway_ids([{}, said([OTHER, lineage.instance]), *crowds])
    assert (known[0], len(known), known.count(lineage.instance)) == (lineage.instance, 64, 1)
    assert OTHER in lineage.list_gateway_ids([said([OTHER])])


async def test_a_mark_that_is_none_does_no_harm() -> None:
    """Whatever somebody put there."""
    for text in ("", " ", "x", ":", "a:b:c"):
        assert await opened(Lineage({STARTED_BY: text}), Session(OTHER))
