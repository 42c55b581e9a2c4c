"""Links of results: found without reading where there are none, rewritten exactly, remembered within bounds."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from gateway_fakes import config
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.catalog import LINK_LIFE_S, Catalog
from smart_mcp_proxy.errors import CatalogError, ProxyError, QuarantinedError, UnverifiedError
from smart_mcp_proxy.gateway.results.results import may_link
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.links import (
    LINKS_PER_RESULT,
    OPENED_S,
    URI_CHARS,
    Links,
    opens_by_link,
    relink_prompt,
    relink_result,
    relink_tool,
)
from smart_mcp_proxy.gateway.visibility.uri_templates import gateway_uri, split_gateway_uri
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.raw_result import RawResult

pytestmark = pytest.mark.anyio

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
uris = st.builds(str.__add__, st.sampled_from(["ui://", "https://", "note://", "mcpproxy://", "UI:", ""]), words)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
    | st.just("resource"),
    lambda deeper: st.lists(deeper, max_size=2) | st.dictionaries(words | st.just("uri"), deeper, max_size=2),
    max_leaves=4,
)
more = st.dictionaries(words.filter(lambda word: word not in ("uri", "type", "resource")), values, max_size=2)
links = st.builds(lambda own, uri: own | {"type": "resource_link", "uri": uri}, more, uris | values)
embeds = st.builds(
    lambda own, inner, uri: own | {"type": "resource", "resource": inner | {"uri": uri}}, more, more, uris | values
)
texts = st.builds(lambda own, text: own | {"type": "text", "text": text}, more, words)
metas = st.builds(lambda own, uri: own | {"ui": {"resourceUri": uri}}, more, uris | values) | values
results = st.fixed_dictionaries(
    {"content": st.lists(links | embeds | texts | values, max_size=3) | values},
    optional={"structuredContent": links | embeds | values, "_meta": metas, "isError": st.booleans()},
)


def expected(result: dict[str, Any], found: list[str]) -> dict[str, Any]:
    """The result with its links under the gateway's URIs, told as plainly as can be."""

    def uri(value: Any) -> Any:
        if isinstance(value, str):
            found.append(value)
        return gateway_uri("s", value) if isinstance(value, str) else value

    new: dict[str, Any] = json.loads(json.dumps(result))
    blocks = new["content"] if isinstance(new["content"], list) else []
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "resource_link":
            block["uri"] = uri(block["uri"])
        elif isinstance(block, dict) and block.get("type") == "resource" and isinstance(block.get("resource"), dict):
            block["resource"]["uri"] = uri(block["resource"]["uri"])
    meta = new.get("_meta")
    is_whole = isinstance(new["content"], list)  # what is no result is passed on as it is
    if is_whole and isinstance(meta, dict) and isinstance(meta.get("ui"), dict):
        shown = meta["ui"].get("resourceUri")
        meta["ui"]["resourceUri"] = gateway_uri("s", shown) if isinstance(shown, str) else shown
    return new


@pytest.mark.long  # a third of a second of processor time
@given(results, st.booleans())
def test_only_the_uris_of_links_are_rewritten(result: dict[str, Any], is_ascii: bool) -> None:
    """Whatever else is in the result, text and structured content above all, stays as it is."""
    raw = json.dumps(result, ensure_ascii=is_ascii).encode()
    found: list[str] = []
    wanted_found: list[str] = []
    got = relink_result(raw, partial(gateway_uri, "s"), found.append)
    wanted = expected(result, wanted_found)
    assert json.loads(got) == wanted
    assert found == wanted_found
    assert got == raw if wanted == result else may_link(RawResult(raw))


@given(words.filter(bool), uris.filter(bool))
def test_every_uri_of_the_gateway_leads_back(server: str, uri: str) -> None:
    """To the server and the server's own URI; pages of the web name no server."""
    shown = gateway_uri(server, uri)
    is_web = uri.startswith("https://")
    assert (shown == uri) if is_web else split_gateway_uri(shown) == (server, uri)
    assert not uri.startswith("ui://") or uri == "ui://" or shown.startswith("ui://")


def test_a_number_keeps_its_digits() -> None:
    """Of what stands beside a rewritten URI."""
    raw = b'{"content":[{"uri":"a:1","type":"resource_link","size":1.50,"big":123456789012345678901234567890}]}'
    assert relink_result(raw, partial(gateway_uri, "s")) == raw.replace(b'"a:1"', b'"mcpproxy://s/a%3A1"')


@pytest.mark.parametrize("word", ['"resource_link"', '"\\u0072esource_link"', '"re\\u0073ource\\u005flink"'])
def test_a_link_is_found_however_it_is_spelled(word: str) -> None:
    """JSON lets every letter be an escape."""
    raw = b'{"content":[{"type":%b,"uri":"a:1"}]}' % word.encode()
    assert may_link(RawResult(raw))
    assert b"mcpproxy://s/a%3A1" in relink_result(raw, partial(gateway_uri, "s"))


@pytest.mark.parametrize("text", ["plain", "x" * 50_000, '"' * 50_000], ids=["short", "long", "quotes"])
@pytest.mark.parametrize("cut", [None, 0, 3, 8, 9, 30])
def test_a_link_is_found_behind_any_text_and_cut_into_pieces(text: str, cut: int | None) -> None:
    """A long result comes in pieces, which may part a word; in a text the same words are none."""
    blocks = [{"type": "text", "text": text}, {"type": "resource_link", "uri": "a:1"}]
    raw = json.dumps({"content": blocks}).encode()
    at = len(raw) if cut is None else raw.index(b'"resource_link') + cut
    assert may_link(RawResult(*filter(None, (raw[:at], raw[at:]))))
    raw = json.dumps({"content": blocks[:1]}).encode()
    assert not may_link(RawResult(raw[:20], raw[20:])) and not may_link(RawResult(raw))


@pytest.mark.parametrize("text", ["plain", "a resource, e.g. resource_link", "\u00e9\u00fc\n\t", "x" * 100_000])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_result_without_links_is_not_read(text: str, is_ascii: bool) -> None:
    """Words and escapes of every day are no sign of a link."""
    raw = json.dumps({"content": [{"type": "text", "text": text}]}, ensure_ascii=is_ascii).encode()
    assert not may_link(RawResult(raw))
    assert not may_link(RawResult(raw[:20], raw[20:]))


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"null", b'{"content":null}', b'{"content":[{"type":"resource_link","uri":"\\ud800"}]}']
)
def test_what_cannot_be_read_is_passed_on(raw: bytes) -> None:
    """It is for others to say what is wrong with it."""
    assert relink_result(raw, partial(gateway_uri, "s")) == raw
    assert relink_prompt(raw, partial(gateway_uri, "s")) == raw


def test_a_prompt_may_hold_one_block_or_many() -> None:
    """All links in it are rewritten."""
    one, text = {"type": "resource_link", "uri": "a:1"}, {"type": "text", "text": "a:1"}
    prompt = {"messages": [{"content": one}, {"content": [text, one]}, {"content": text}, "odd"], "x": 1}
    got = json.loads(relink_prompt(json.dumps(prompt).encode(), partial(gateway_uri, "s")))
    new = one | {"uri": "mcpproxy://s/a%3A1"}
    assert got == {"messages": [{"content": new}, {"content": [text, new]}, {"content": text}, "odd"], "x": 1}


@pytest.mark.parametrize("meta", [None, 1, {"ui": None}, {"ui": {"resourceUri": None}}, {"ui": {}}])
def test_a_tool_without_an_interface_stays_as_it_is(meta: Any) -> None:
    """Whatever stands in its place."""
    assert relink_tool({"name": "x", "_meta": meta}, str.upper) == {"name": "x", "_meta": meta}


@pytest.mark.parametrize(
    "uri",
    [
        *("ui://x", "UI://x", " ui:x", "u%69://x", "%20ui:x", "skill://x/SKILL.md", "Skill:x", "skill%3A//x"),
        *("file:///a/SKILL.md", "file:///a/skill.md?v=1#x", "file:///s/SKILL%2Emd", "file:///s/SKILL.md/"),
        *("SKILL.md", "x:SKILL.md", "x:a%5Cskill.md", "file:///s%2FSKILL.md//#x", "file:///s/SKILL.md%3Fx"),
    ],
)
def test_interfaces_and_skills_are_for_the_user_to_approve(uri: str) -> None:
    """A link never opens them, however they are spelled."""
    assert not opens_by_link(uri)
    assert all(map(opens_by_link, ("note://ui://x", "file:///a/skill.md.txt", "file:///a/myskill.md", "n:100%")))


class ResultLinkSetup:
    """The servers alpha and beta, and what a principal's results link to."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.now_s = 1_700_000_000.0
        self.links = Links(catalog, lambda: self.now_s)
        servers = {"alpha": config("alpha"), "beta": config("beta")}
        self.visible = CatalogView(catalog, servers, lambda name, n, *, allowed: [])
        self.contents = Contents(catalog, self.visible, 60, None)
        self.statements: list[str] = []

    async def lists(self, uris: Sequence[str], templates: Sequence[str] = ()) -> None:
        """Alpha's first list, which is trusted, is empty; these come later."""
        for kind, key, items in (("resources", "uri", uris), ("templates", "uriTemplate", templates)):
            await self.catalog.sync(f"alpha:{kind}", [])
            await self.catalog.sync(f"alpha:{kind}", [{key: each, "name": "x"} for each in items])

    async def linked(self, *uris: str, server: str = "alpha", principal: str = "ann") -> list[str]:
        """What the principal's result then says."""
        blocks = [{"type": "resource_link", "uri": uri} for uri in uris]
        raw = RawResult(json.dumps({"content": blocks}).encode())
        got = json.loads((await self.links.relink_and_remember(raw, server, principal)).text)
        return [block["uri"] for block in got["content"]]

    async def leads(self, uri: str, principal: str = "ann") -> str:
        """Server and URI that are asked; or the refusal's code."""
        try:
            target = await self.links.find(self.contents, uri, principal)
        except ProxyError as error:
            return error.error_code
        return f"{target.server} {target.name}"


@pytest.fixture
async def setup(tmp_path: Path) -> Any:
    async with Catalog.open(tmp_path / "data", name_limit=60) as catalog:
        yield ResultLinkSetup(catalog)


async def test_a_link_opens_a_new_resource_for_an_hour(setup: ResultLinkSetup) -> None:
    """For its principal, at its server; asked for again, for another hour."""
    await setup.lists(["n:1", "n:2"])
    (uri,) = await setup.linked("n:1")
    assert await setup.leads(uri) == "alpha n:1"
    assert await setup.leads(uri, "bob") == "quarantined"
    assert await setup.leads(gateway_uri("alpha", "n:2")) == "quarantined"
    assert await setup.leads(gateway_uri("alpha", "N:1")) == "quarantined"
    setup.now_s += LINK_LIFE_S
    assert await setup.leads(uri) == "quarantined"
    await setup.linked("n:1")
    assert await setup.leads(uri) == "alpha n:1"


async def test_an_opened_page_counts_for_a_month(setup: ResultLinkSetup) -> None:
    """For its session, or its principal where there is none, and for nobody else; opened again, for another month."""
    opened = setup.links.find_opened_servers
    await setup.links.note_opened("alpha", "ann", "s1")
    await setup.links.note_opened("beta", "ann", None)
    assert await opened("ann", "s1") == ("alpha",) and await opened("ann", None) == ("beta",)
    for principal, session in (("ann", "s2"), ("bob", "s1"), ("bob", None), ("ann\ns1", None), ("", "s1")):
        assert await opened(principal, session) == ()
    setup.now_s += OPENED_S - 1
    assert await opened("ann", "s1") == ("alpha",)
    setup.now_s += 1
    assert await opened("ann", "s1") == await opened("ann", None) == ()
    await setup.links.note_opened("alpha", "ann", "s1")
    assert await opened("ann", "s1") == ("alpha",)


async def test_a_link_of_another_server_opens_nothing(setup: ResultLinkSetup) -> None:
    """Even if it writes the gateway's own URI of the first one's resource."""
    await setup.lists(["n:1"])
    shown = gateway_uri("alpha", "n:1")
    assert await setup.linked("n:1", shown, server="beta") == [gateway_uri("beta", "n:1"), gateway_uri("beta", shown)]
    assert await setup.leads(shown) == "quarantined"


async def test_a_link_to_what_is_not_listed_opens_it_while_others_are_new(setup: ResultLinkSetup) -> None:
    """A server need not list all it has; where something is blocked, another name for that could be meant."""
    await setup.lists(["n:1"])
    (uri,) = await setup.linked("n:unlisted")
    assert await setup.leads(gateway_uri("alpha", "n:never")) == "quarantined"
    assert await setup.leads(uri) == "alpha n:unlisted"
    await setup.catalog.block(ToolKey("alpha:resources", "n:1"), "tester")
    await setup.catalog.refresh()
    assert await setup.leads(uri) == "quarantined"


@pytest.mark.parametrize("state", ["blocked", "changed"])
@pytest.mark.parametrize("kind", ["resources", "templates"])
async def test_what_is_blocked_or_changed_stays_closed(setup: ResultLinkSetup, state: str, kind: str) -> None:
    """Named by the link, under another spelling, or of such a template."""
    name, key = ("n://host/a", "uri") if kind == "resources" else ("n://host/{x}", "uriTemplate")
    await setup.catalog.sync(f"alpha:{kind}", [{key: name, "name": "x"}])
    if state == "blocked":
        await setup.catalog.block(ToolKey(f"alpha:{kind}", name), "tester")
    else:
        await setup.catalog.sync(f"alpha:{kind}", [{key: name, "name": "changed"}])
    await setup.catalog.refresh()
    for uri in await setup.linked("n://host/a", "N://HOST/x/../a"):
        assert await setup.leads(uri) == "quarantined"


async def test_a_link_to_what_changes_meanwhile_is_refused_before_it_is_sent(setup: ResultLinkSetup) -> None:
    """The look before a request goes out is the same one."""
    await setup.lists(["n:1"])
    await setup.linked("n:1")
    target = await setup.links.find(setup.contents, gateway_uri("alpha", "n:1"), "ann")
    assert target.is_linked and target.record is None
    await setup.catalog.block(ToolKey("alpha:resources", "n:1"), "tester")
    await setup.catalog.refresh()
    with pytest.raises(QuarantinedError):
        setup.contents.resolve_link("alpha", "n:1")


async def test_of_a_result_so_many_links_are_remembered(setup: ResultLinkSetup) -> None:
    """All are rewritten; a URI beyond all measure is not remembered."""
    uris = [f"n:{number}" for number in range(LINKS_PER_RESULT + 1)]
    await setup.lists([*uris, long := "n:" + "x" * URI_CHARS])
    shown = await setup.linked(long, *uris)
    assert shown == [f"mcpproxy://alpha/{quote(uri, safe='')}" for uri in (long, *uris)]
    assert [await setup.leads(uri) for uri in (shown[0], shown[1], shown[-2], shown[-1])] == [
        "quarantined",
        "alpha n:0",
        f"alpha {uris[-2]}",
        "quarantined",
    ]


async def test_what_is_approved_needs_no_link(setup: ResultLinkSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither written down nor looked up: such a call and such a read meet no SQL."""
    await setup.catalog.sync(
        "alpha:resources", [{"uri": "n:1", "name": "x"}, {"uri": "https://a.example/", "name": "y"}]
    )

    async def never(work: Any, **how: Any) -> Any:
        raise AssertionError("SQL")

    monkeypatch.setattr(setup.catalog, "write", never)
    monkeypatch.setattr(setup.catalog, "read", never)
    for uri in await setup.linked("n:1", "https://a.example/"):
        assert (await setup.leads(uri)).startswith("alpha ")
    assert await setup.leads(gateway_uri("beta", "n:unlisted")) == "beta n:unlisted"


async def test_a_page_of_the_web_leads_to_the_server_that_had_it_first(setup: ResultLinkSetup) -> None:
    """No later server gets its readers; a page that nobody lists is asked of the one that linked to it last."""
    page, other = "https://a.example/page", "https://a.example/other"
    await setup.catalog.sync("beta:resources", [{"uri": page, "name": "x"}])
    await setup.catalog.sync("alpha:resources", [{"uri": page, "name": "y"}])
    assert [item.server for item in setup.contents.of("resources").values()] == ["beta"]
    await setup.linked(page, other)
    assert await setup.leads(page) == f"beta {page}"
    assert await setup.leads(gateway_uri("alpha", page)) == f"beta {page}"
    assert await setup.leads("mcpproxy://alpha/" + quote(page, safe="")) == f"alpha {page}"
    assert await setup.leads(other) == f"alpha {other}"
    await setup.linked(other, server="beta")
    assert await setup.leads(other) == f"beta {other}"
    assert await setup.leads(other, "bob") == "not_found"


async def test_a_page_that_a_result_links_to_is_not_for_another_servers_template(setup: ResultLinkSetup) -> None:
    """Its URI may be a secret of the server that linked to it; the template has what nobody linked to."""
    page, signed = "https://alpha.example/page", "https://beta.example/private?sig=1"
    await setup.catalog.sync("alpha:templates", [{"uriTemplate": "https://{+rest}", "name": "x"}])
    assert await setup.leads(page) == f"alpha {page}"
    await setup.linked(signed, server="beta")
    assert await setup.leads(signed) == f"beta {signed}"
    assert await setup.leads(signed, "bob") == f"alpha {signed}"
    setup.visible.reconfigure({"alpha": config("alpha")})
    assert await setup.leads(signed) == "not_found"


async def test_a_link_of_a_server_that_cannot_be_read_leaves_the_older_ones(setup: ResultLinkSetup) -> None:
    """The latest server that linked to a page may be hidden, or have changed it; refused only if all are."""
    page = "https://a.example/page"
    await setup.linked(page)
    await setup.linked(page, server="beta")
    for name in ("first", "changed"):
        await setup.catalog.sync("beta:templates", [{"uriTemplate": "https://{+rest}", "name": name}])
    assert await setup.leads(page) == f"alpha {page}"
    setup.visible.reconfigure({"alpha": config("alpha")})
    assert await setup.leads(page) == f"alpha {page}"
    setup.visible.reconfigure({})
    assert await setup.leads(page) == "not_found"


async def test_a_page_that_waits_for_the_user_says_so(setup: ResultLinkSetup) -> None:
    """It is not worded as unknown."""
    await setup.lists(["https://a.example/new"])
    assert await setup.leads("https://a.example/new") == "quarantined"


async def test_a_store_that_fails_costs_the_link_and_not_the_result(
    setup: ResultLinkSetup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The tool has done its work; that its links cannot be followed is said in the log."""
    await setup.lists(["n:1"])

    async def broken(work: Any, **how: Any) -> Any:
        raise CatalogError("The disk is full.")

    monkeypatch.setattr(setup.catalog, "write", broken)
    monkeypatch.setattr(setup.catalog, "read", broken)
    assert await setup.leads((await setup.linked("n:1"))[0]) == "quarantined"
    assert "links of 'alpha' cannot be followed" in caplog.text
    with pytest.raises(UnverifiedError, match="cannot be looked up now"):
        await setup.links.find(setup.contents, "https://a.example/page", "ann")
