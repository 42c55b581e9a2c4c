"""The trial of published servers, on two small ones: alone, through a gateway, and the page about it."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from trials import known_rows, reporting, servers, trying

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).parent / "fake_published.py"
TABLE = FAKE.with_name("servers.toml")


def published(name: str, **more: Any) -> servers.PublishedServer:
    return servers.PublishedServer(name, f"@shop/{name}", "1.0.0", "npm", variables={"KEY": ""}, **more)


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.anyio
async def test_servers_are_tried_alone_and_together(tmp_path: Path) -> None:
    """Whatever differs or is left is named; what came through as it was is not."""
    plain = published("plain", search={"query": "what the shop has", "finds": "look"})
    odd = published("odd", call={"tool": "look", "arguments": "{}"})
    batch = {
        plain: servers.Installation((sys.executable, str(FAKE)), 61.2, 1.0),
        odd: servers.Installation((sys.executable, str(FAKE), "odd"), 1.0, 1.0),
    }
    alone = {}
    for server, installed in batch.items():
        for place in ("home", "work"):
            (tmp_path / server.name / place).mkdir(parents=True)
        alone[server.name] = await trying.try_alone(server, installed, tmp_path / server.name)
    together = await trying.try_together(batch, alone, tmp_path)
    results = tmp_path / "results"
    results.mkdir()
    for server, installed in batch.items():
        row = {"size_mb": installed.size_mb, "alone": alone[server.name], "through": together[server.name]}
        (results / f"{server.name}.json").write_text(json.dumps(row))
    report, page, known = tmp_path / "report.json", tmp_path / "page.md", tmp_path / "known.json"
    reporting.write_report([*batch], results, report, page)
    rows = json.loads(report.read_text())
    same = rows["plain"]
    assert (same["outcome"], same["same_result"], same["rank"], same["needs"]) == ("same", True, 1, ["KEY"])
    assert (same["protocol"], same["dialects"], same["ending"][0]) == ("2025-06-18", ["draft-07"], "end of input")
    other = rows["odd"]
    assert (other["outcome"], other["other_lines"], other["left"]) == ("different", 1, [["sleep"], []])
    assert other["differences"][0].startswith("look.description: ")
    assert "same_result" not in other
    assert "leaves processes (sleep), answers otherwise, lists otherwise" in page.read_text()
    known.write_text('{"@shop/plain": {"separation": "keeps a basket", "installed_mb": 9}}')
    known_rows.write_known([*batch], results, known)
    row = {"separation": "keeps a basket", "needs": ["KEY"], "installed_mb": 61}
    assert json.loads(known.read_text()) == {"@shop/odd": {"needs": ["KEY"]}, "@shop/plain": row}


def test_a_definition_that_is_missing_or_has_another_field_is_found() -> None:
    """Fields that no specification knows as well; null and empty ones say nothing."""
    listed = [{"name": "a", "title": None, "inputSchema": {"type": "object"}, "x-own": 1}, {"name": "b"}]
    whole = {"a": {"title": "", "input_schema": {"type": "object"}, "definition": {"x-own": 1}}}
    assert trying.compare_definitions(listed, whole, "s") == ["b is missing"]
    (found, _) = trying.compare_definitions(listed, {"a": whole["a"] | {"definition": {"x-own": 2}}}, "s")
    assert found == "a.x-own: 1 | 2"


def test_a_result_is_the_same_whenever_it_was_made() -> None:
    """An error is, where the gateway quotes it."""
    first, later = ({"content": [{"type": "text", "text": f"at 2026-11-29T09:1{n}:27.687Z"}]} for n in (1, 2))
    assert trying.is_same_result(first, later | {"_meta": {"own": 1}})
    assert not trying.is_same_result(first, {"content": [{"type": "text", "text": "at noon"}]})
    quoted = {"structuredContent": {"error": {"message": "It answered: no such shop"}}, "isError": True}
    assert trying.is_same_result({"error": {"code": -32603, "message": "no such shop"}}, quoted)
    assert not trying.is_same_result({"error": {"code": -32603, "message": "closed"}}, quoted)


def test_a_result_that_names_what_the_sandbox_refused_says_why_it_differs() -> None:
    """It is no result of the gateway's, and comes through as it is."""
    text = {"type": "text", "text": "daemon: not up\nlisten unix /home/a/d.sock: socket: permission denied"}
    hinted = {"type": "text", "text": '{"error":{"hint":" It runs in a sandbox, which may be why: "}}'}
    for said in (text, hinted):
        result = {"content": [said], "isError": True}
        seen = {"alone": {}, "through": {"state": "ready", "same_result": False, "result": result}}
        row = reporting.summarize(published("phone"), seen)
        assert (row["refused"], row["same_result"]) == (True, False)
    seen["through"] |= {"result": {"content": []}}
    assert "refused" not in reporting.summarize(published("phone"), seen)


def test_the_table_names_each_server_once_and_in_one_version() -> None:
    """At least as many as the page promises, a third of them for Python."""
    table = servers.read_table(TABLE)
    assert len(table) >= 120 and sum(each.ecosystem == "pypi" for each in table) * 3 >= len(table)
    assert len({(each.ecosystem, each.package) for each in table}) == len(table)
    assert all(json.loads(each.call["arguments"]) is not None for each in table if each.call)


def test_the_page_is_drawn_from_the_report() -> None:
    """And the gateway's own table has what the report saw to be needed."""
    report = json.loads(TABLE.with_name("report.json").read_text("utf-8"))
    assert (ROOT / "docs" / "servers-tried.md").read_text("utf-8") == reporting.draw_page(report)
    known = json.loads((ROOT / "smart_mcp_proxy" / "servers" / "known" / "known_servers.json").read_text("utf-8"))
    names = Counter(row["package"] for row in report.values())
    rows = [row for row in report.values() if row.get("needs") and names[row["package"]] == 1]
    assert rows and all(known[row["package"]]["needs"] == row["needs"] for row in rows)
