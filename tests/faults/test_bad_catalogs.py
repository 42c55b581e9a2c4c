"""Odd tools, lists and greetings: each costs what it must and no more, and is told of in words of its own.

The ids are those of the project's list of bad inputs.
"""

import json
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from modes import Place
from rig import ENVIRON, Rig, opened_rig

from smart_mcp_proxy.fastmcp_compat.handlers import Inbound
from smart_mcp_proxy.models import LOCAL

pytestmark = [pytest.mark.anyio, pytest.mark.long]

GOOD = {"faulty:effect", "faulty:echo"}
WITH_ODD = GOOD | {"faulty:odd"}
SLOW_PAD = {"pad": "a" * 40 + "!"}
DROPPED = "Server 'faulty': tool 'odd' is left out, "
HEADER = f"{DROPPED}its x-mcp-header cannot be used: "


class Row(NamedTuple):
    """One fault and what must come of it.

    Attributes:
        id: In the list of bad inputs.
        fault: Of the faulty server.
        told: What the log says of it; empty: nothing.
        tools: Those that an agent finds afterwards.
        outcome: Of a call of `effect`, and part of what its error says.
        arguments: Of that call, besides the nonce.
    """

    id: str
    fault: str
    told: str = ""
    tools: set[str] = GOOD
    outcome: tuple[str, str] = ("ok", "recorded")
    arguments: dict[str, Any] = {}  # noqa: RUF012  (never changed)


UNFIT = ("invalid_arguments", 'at pad: "aaaaaaaaaa')
GONE = ("tool_not_found", "No tool is named 'faulty:effect'.")
ROWS = [
    Row("B69 a reference elsewhere", "list ref-remote"),
    Row("B69 a reference to itself", "list ref-loop"),
    Row("B69 a tree of references", "list ref-tree"),
    Row(
        "B69 400 levels",
        "list schema-deep",
        "tool 'effect' is left out, it cannot be read: it is nested deeper than 240 levels",
        tools={"faulty:echo"},
        outcome=("upstream_failed", "'effect', but it cannot be used: it cannot be read: it is nested deeper than 240"),
    ),
    Row(
        "B69 3,000 levels",
        "list schema-3000-deep",
        "the last list stays: Server 'faulty' sent an answer to 'tools/list'",
    ),
    Row("B69 10,000 parameters", "list schema-wide"),
    Row("B69 a slow pattern", "list pattern-slow", outcome=UNFIT, arguments=SLOW_PAD),
    Row("B70 an unknown dialect", "list schema-dialect", tools=WITH_ODD),
    Row(
        "B71 a line end", "list header-crlf", HEADER + r"property 'pad': x-mcp-header 'a\r\nb' is not an RFC 9110 token"
    ),
    Row("B71 on an object", "list header-on-object", HEADER + "property 'pad': x-mcp-header is only permitted on"),
    Row("B71 twice", "list header-twice", HEADER + "x-mcp-header 'A' on property 'a' duplicates property 'b'"),
    Row("B71 a good one", "list header-good"),
    Row("B73 no texts", "list names-typed", "tool '7' is left out, its name is no text."),
    Row("B74 a number", "list description-number", DROPPED + "its description is no text."),
    Row("B79 no booleans", "list annotations-odd"),
    Row("B79 an array", "list annotations-list", DROPPED + "its annotations is no object."),
    Row("B79 an array as _meta", "list meta-list", DROPPED + "its _meta is no object."),
    Row("B80 an unknown type", "list output-invalid"),
    Row("B80 a number", "list output-number", DROPPED + "its outputSchema is no schema."),
    Row("B82 icons", "list icons"),
    Row("B83 no tools", "init no-tools", tools=set(), outcome=GONE),
    Row("B83 no capabilities", "init capabilities-null", tools=set(), outcome=GONE),
    Row("B83 tools: true", "init tools-true"),
    Row("B84 an array", "init info-list"),
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all rows."""
    return "asyncio"


@pytest.fixture(scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """A gateway that has met the faulty server in good health."""
    async with opened_rig(tmp_path_factory.mktemp("lists"), Place("http", "modern")) as opened:
        yield opened


async def asked(rig: Rig, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured answer of one of the gateway's tools."""
    params = {"name": tool, "arguments": arguments}
    result = await rig.gateway.agent.call_tool(Inbound(params, {}, "modern", "2026-07-28", LOCAL, None))
    structured: dict[str, Any] = result["structuredContent"]
    return structured


async def listed(rig: Rig) -> dict[str, dict[str, Any]]:
    """The tools of the faulty server that an agent finds, as it finds them."""
    answer = await asked(rig, "retrieve_tools", query="faulty:odd record or say a nonce", servers=["faulty"], limit=50)
    return {tool["name"]: tool for tool in answer["tools"]}


async def met(rig: Rig, fault: str) -> None:
    """Has the gateway meet the server with a fault, and wait for what comes of it."""
    rig.faulty.switch("")
    await rig.reconnect()
    await rig.settle()
    rig.faulty.switch(fault)
    await rig.reconnect()
    await rig.settle()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
async def test_an_odd_list_costs_what_is_odd(rig: Rig, caplog: pytest.LogCaptureFixture, row: Row) -> None:
    """The server stays, the good tools stay and can be called, and the log says what is left out and why."""
    with caplog.at_level(logging.WARNING):
        await met(rig, row.fault)
        said = [record.getMessage() for record in caplog.records if "'faulty'" in record.getMessage()]
        names = set(await listed(rig)) & WITH_ODD
        mode_arguments = {"nonce": (nonce := rig.nonce()), **row.arguments}
        result = await rig.gateway.agent.call_tool(
            Inbound(
                {"name": "call_tool_write", "arguments": {"name": "faulty:effect", "args": mode_arguments}},
                {}, "modern", "2026-07-28", LOCAL, None,
            )
        )  # fmt: skip
    lists = [text for text in said if "tool" in text]
    assert any(row.told in text for text in lists) if row.told else not lists, said
    assert names == row.tools
    code, words = row.outcome
    error = result["structuredContent"]["error"] if result.get("isError") else {"code": "ok", "message": "recorded"}
    assert (error["code"], words in error["message"]) == (code, True), error
    assert rig.faulty.executions(nonce) == (code == "ok")
    assert rig.gateway.status().servers[0].state == "ready"


async def test_a_tool_with_any_name_is_called_by_it(rig: Rig) -> None:
    """B73: control characters, spaces, no ASCII, 300 of them: the server is sent the name that it listed."""
    await met(rig, "list names-odd")
    names = [
        "n" * 300,
        "a b",
        ";rm -rf /",
        "a\nb",
        "a\x00b",
        "工具",
        "__proto__",
        "a:b:c",
        "..",
        "%2e",
        "retrieve_tools",
    ]
    exposed = [rig.gateway.visible.find(f"faulty:{name}").listed_name for name in names]
    assert len({*exposed}) == len(names)
    assert all(len(name) <= 64 and name.isascii() for name in exposed)
    for name in names:
        nonce = rig.nonce()
        assert (await rig.call(nonce, tool=f"faulty:{name}")).outcome == "ok"
        sent = next(json.loads(entry["message"]) for entry in rig.faulty.wire() if f'"{nonce}"' in entry["message"])
        assert sent["params"]["name"] == name


@pytest.mark.parametrize("fault", ["list description-huge", "list description-lines"])
async def test_an_endless_description_is_cut_with_a_mark(rig: Rig, fault: str) -> None:
    """B74: two megabytes, a million lines: an agent gets a line, and sees that it is not all."""
    await met(rig, fault)
    description = (await listed(rig))["faulty:effect"]["description"]
    assert len(description) <= 200
    assert description.endswith("…") or not description


async def test_five_thousand_tools_are_listed_and_found(rig: Rig) -> None:
    """B75: within the limits of a listing; how many are too many, the tests of listings say."""
    await met(rig, "list 5000-tools")
    assert rig.gateway.status().tools["faulty"] == 5_002
    answer = await asked(rig, "retrieve_tools", query="faulty:more_4321")
    assert answer["tools"][0]["name"] == "faulty:more_4321"


async def test_contradictory_hints_make_no_tool_less_dangerous(rig: Rig) -> None:
    """B79: read-only and destructive at once, where it was neither before: the user decides, and is asked by name."""
    await met(rig, "list annotations-both")
    assert "faulty:effect" not in await listed(rig)
    error = (await asked(rig, "call_tool_read", name="faulty:effect", args={"nonce": "n"}))["error"]
    assert (error["code"], error["delivery"]) == ("quarantined", "not_sent")
    assert error["message"].startswith("Tool 'faulty:effect' has changed since the user approved it. The scanner")
    assert "approve" in error["hint"]


@pytest.mark.parametrize("fault", ["list icons", "list ref-remote"])
async def test_what_a_definition_points_to_is_never_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """B82, B69: neither where it is listed, searched, described, nor where it is called."""
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.setblocking(False)
        monkeypatch.setitem(ENVIRON, "ELSEWHERE_PORT", str(elsewhere.getsockname()[1]))
        async with opened_rig(tmp_path, Place("http", "modern")) as rig:
            await met(rig, fault)
            assert str(elsewhere.getsockname()[1]).encode() in rig.gateway.visible.find("faulty:effect").raw
            assert "faulty:effect" in await listed(rig)
            assert "error" not in await asked(rig, "describe_tool", names=["faulty:effect"])
            assert (await rig.call(rig.nonce())).outcome == "ok"
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


@pytest.mark.parametrize("hints", [{}, {"readOnlyHint": "yes", "destructiveHint": 1}], ids=["none", "no booleans"])
async def test_a_hint_that_is_no_boolean_says_nothing(rig: Rig, hints: dict[str, Any]) -> None:
    """B79: the tool is one that writes, as without any."""
    await met(rig, "list annotations-odd" if hints else "")
    found = (await listed(rig))["faulty:effect"]
    assert (found["annotations"], found["call_with"]) == ({}, "call_tool_write")


async def test_what_a_server_calls_itself_is_no_identity(tmp_path: Path) -> None:
    """B84: a megabyte of it is cut, and two that call themselves alike stay two."""
    async with opened_rig(tmp_path, Place("stdio", "handshake")) as rig:
        faulty, neighbour = sorted(rig.gateway.status().servers, key=lambda server: server.name)
        assert faulty.server_info == neighbour.server_info == "faulty 1"
        for tool in ("faulty:effect", "neighbour:effect"):
            assert (await rig.call(rig.nonce(), tool=tool)).outcome == "ok"
        await met(rig, "init big-name")
        faulty = next(server for server in rig.gateway.status().servers if server.name == "faulty")
        assert (faulty.state, len(faulty.server_info)) == ("ready", 202)
        assert (await rig.call(rig.nonce())).outcome == "ok"
