"""Who may look at the page, and what a browser is told to keep to."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from mcp_types import Implementation
from page_gateway import ENVIRON, PLACES, Markup, Opened, browser, opened, stranger, tool
from plain_http import plain_client

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.errors import RefusedError, RequestError
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.gateway.admin.page_sessions import LINK_S, SESSION_S, PageSessions
from smart_mcp_proxy.gateway.admin.roles import NETWORK, OWNER, Admitted
from smart_mcp_proxy.web import page
from smart_mcp_proxy.web.page.places import PLACES as TABLE
from smart_mcp_proxy.web.rest import operator_token

pytestmark = pytest.mark.anyio

POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the gateway of all tests here."""
    return "asyncio"


@pytest.fixture(scope="module")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    """A gateway whose server lists a tool that agents see, and one that waits."""
    async with opened(tmp_path_factory.mktemp("entry"), [tool("a")]) as found:
        await found.turn([tool("a"), tool("b")])
        yield found


@pytest.mark.long  # a third of a second of processor time
async def test_a_client_without_a_session_stands_under_its_name(there: Opened) -> None:
    """With its version, as one with a session does."""
    async with Client(f"{there.base}/mcp", client_info=Implementation(name="my-agent", version="9.8")) as client:
        await client.list_tools()
    async with browser(there) as page:
        assert re.search(r"<td>my-agent <small[^>]*>9\.8</small></td>", (await page.get("clients")).text)


async def read_access(there: Opened, last: str) -> list[dict[str, Any]]:
    """Records of links and sign-ins, the newest first, once the newest is of this change."""
    async with asyncio.timeout(60):
        while (found := await there.records("access"))[0]["detail"]["change"] != last:
            await asyncio.sleep(0)
    return found


@pytest.mark.long  # a third of a second of processor time
async def test_a_link_lets_one_browser_in_once(there: Opened) -> None:
    """The second one to open it is told to ask for another; of two at the same moment one comes in."""
    link = await there.link()
    async with stranger(there) as first, stranger(there) as second:
        replies = await asyncio.gather(first.client.get(link), second.client.get(link))
        assert sorted(reply.status_code for reply in replies) == [200, 403]
        statuses = sorted([(await first.get()).status_code, (await second.get()).status_code])
        assert statuses == [200, 401]
        again = await first.client.get(link)
        assert again.status_code == 403 and "used already" in again.text and "set-cookie" not in again.headers
        assert (await first.client.get("/ui/enter/never-made")).status_code == 403
    entered, made, *_ = await read_access(there, "signed in")
    assert (entered["principal"], entered["subject"]) == (made["principal"], made["subject"]) == ("operator", "page")
    assert (made["detail"], entered["detail"]) == ({"change": "link made"}, {"change": "signed in", "role": "admin"})


async def test_the_cookie_is_the_pages_alone(there: Opened) -> None:
    """No script reads it, no other site's request carries it, and no other path of the gateway gets it."""
    async with stranger(there) as found:
        reply = await found.client.get(await there.link())
        cookie = reply.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie and "path=/ui;" in cookie + ";"
        assert "secure" not in cookie  # over plain HTTP a browser would drop it


async def test_without_the_cookie_nothing_is_shown_or_done(there: Opened) -> None:
    """Every place and every action, and the same words for each."""
    async with stranger(there) as found:
        for place in TABLE:
            reply = await found.client.request(place.method, f"/ui{place.path}")
            assert reply.status_code == 401 and "mcpproxy ui" in reply.text, place
            assert "s:a" not in reply.text
        assert (await found.client.post("/ui/leave")).status_code == 401
        found.client.cookies.set(next(iter([*found.client.cookies, "mcpproxy-page-00000000"])), "x" * 43)
        assert (await found.get()).status_code == 401


@pytest.mark.long  # a third of a second of processor time
async def test_a_form_of_another_site_changes_nothing(there: Opened) -> None:
    """Without the session's token, with another one, from a foreign Origin, or as anything but a form."""
    async with browser(there) as ours, browser(there) as other:
        token = re.search(r'name="csrf" value="(\w+)"', other.text)
        assert token is not None
        own = {"origin": there.base}
        assert (await ours.client.post("/ui/block", data={"name": "s:a"}, headers=own)).status_code == 403
        wrong = {"name": "s:a", "csrf": token[1]}
        assert (await ours.client.post("/ui/block", data=wrong, headers=own)).status_code == 403
        right = re.search(r'name="csrf" value="(\w+)"', ours.text)
        assert right is not None and right[1] != token[1]
        good = {"name": "s:a", "csrf": right[1]}
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
            assert (await ours.client.post("/ui/block", data=good, headers={"origin": origin})).status_code == 403
        assert (await ours.client.get("/ui/", headers={"origin": "https://evil.example"})).status_code == 403
        assert (await ours.client.post("/ui/block", json=good, headers=own)).status_code == 400
        assert (await ours.client.get("/ui/", headers={"host": "evil.example"})).status_code == 421
        assert (await ours.client.get("/ui/block")).status_code == 405
        assert there.gateway.visible.find("s:a") is not None
        assert await there.gateway.catalog.activity_page(ActivityFilter(kind="approval"), 10) == ()


async def test_a_page_of_another_port_asks_for_nothing_unseen(there: Opened) -> None:
    """A browser sends it the cookie and no Origin with an image or a plain fetch; it may lead somebody here."""
    async with browser(there) as found:
        for site, dest, status in (
            ("same-site", "image", 403),
            ("same-site", "empty", 403),
            ("cross-site", "iframe", 403),
            ("same-site", "document", 200),
            ("same-origin", "empty", 200),
            ("none", "document", 200),
        ):
            headers = {"sec-fetch-site": site, "sec-fetch-dest": dest}
            assert (await found.client.get("/ui/search?q=a", headers=headers)).status_code == status, (site, dest)
        async with asyncio.timeout(60):
            while len(await there.records("search")) < 3:
                await asyncio.sleep(0)
        assert len(await there.records("search")) == 3


@pytest.mark.long  # a third of a second of processor time
async def test_a_form_leads_back_to_places_of_the_page_only(tmp_path: Path) -> None:
    """Whatever it names; what is no address at all is no defect."""
    async with opened(tmp_path, [tool("a")]) as there, browser(there) as found:
        token = re.search(r'name="csrf" value="(\w+)"', found.text)
        assert token is not None
        for back in ("//[", "http://[", "https://evil.example/ui/", "//evil.example/ui/", "/ui/\\evil", "/ui/\r\nx: 1"):
            fields = {"csrf": token[1], "name": "s", "operation": "refresh", "back": back}
            reply = await found.client.post("/ui/server/operate", data=fields, headers={"origin": there.base})
            assert (reply.status_code, reply.headers["location"]) == (303, "/ui/server?name=s"), back


@pytest.mark.long  # much work for one test
async def test_each_page_keeps_to_a_policy_without_inline_scripts_or_styles(there: Opened) -> None:
    """And loads nothing but its own files, of this host."""
    async with browser(there) as found:
        for place in PLACES:
            reply = await found.get(place)
            assert reply.status_code == 200, (place, reply.text)
            assert reply.headers["content-security-policy"] == POLICY
            assert reply.headers["cache-control"] == "no-store" and reply.headers["x-frame-options"] == "DENY"
            assert reply.headers["referrer-policy"] == "same-origin"
            assert Markup(reply.text).harm() == [], place
        missing = await found.get("nowhere")
        assert missing.status_code == 404 and missing.headers["content-security-policy"] == POLICY


async def test_leaving_ends_the_session_for_good(there: Opened) -> None:
    """Whoever kept the cookie has nothing of it."""
    async with browser(there) as found:
        kept = dict(found.client.cookies)
        assert (await found.send("leave")).status_code == 200
        found.client.cookies.update(kept)
        assert (await found.get()).status_code == 401
    assert (await read_access(there, "signed out"))[0]["principal"] == "operator"


async def test_files_are_kept_by_browsers_as_long_as_they_are_the_same(there: Opened) -> None:
    """By their tags; there is no way out of their folder."""
    async with stranger(there) as found:
        reply = await found.client.get("/ui/static/page.css")
        assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/css")
        tag = reply.headers["etag"]
        again = await found.client.get("/ui/static/page.css", headers={"if-none-match": f'"x", {tag}'})
        assert again.status_code == 304 and again.content == b""
        assert (await found.client.get("/ui/static/page.js")).headers["content-type"].startswith("text/javascript")
        for name in ("nothing.css", "..%2fapp.py", "page.html"):
            assert (await found.client.get(f"/ui/static/{name}")).status_code == 404


async def test_rights_are_those_of_whoever_made_the_link(there: Opened) -> None:
    """With the operator's token over the network less than at the command line: what it adds is quarantined."""
    headers = {"authorization": f"Bearer {operator_token(there.gateway.settings)}"}
    async with plain_client(base_url=there.base, headers=headers) as rest:
        assert (await rest.post("/api/v1/page/links", headers={"authorization": "Bearer x"})).status_code == 401
        made = (await rest.post("/api/v1/page/links")).json()
    assert made["url"].startswith(f"{there.base}/ui/enter/") and made["expires_in_s"] == LINK_S
    async with stranger(there) as found:
        await found.enter(made["url"])
        await found.get("servers/new")
        reply = await found.send("servers/add", name="web", entry='{"command": "true"}')
        assert "quarantined" in reply.text
        (record, *_) = await there.records("config")
        assert (record["principal"], record["subject"], record["outcome"]) == ("web", "web", "ok")
        assert '"quarantined": true' in (there.turning.tools.parent / "mcp_config.json").read_text()


@pytest.mark.long  # much work for one test
async def test_another_operators_token_ends_what_the_old_one_opened(tmp_path: Path) -> None:
    """Sessions and links that are not used yet; those of the command line, which needs no token, go on."""
    cookies, links = {}, {}
    async with opened(tmp_path, [tool("a")], operator_token="the-first-token-of-this-operator") as there:
        for by in ("web", "operator"):
            async with stranger(there) as found:
                await found.enter((await there.gateway.admin.page_sessions.make_link(Admitted(by))).url)
                assert (await found.get()).status_code == 200
                (cookies[by],) = found.client.cookies.values()
            links[by] = (await there.gateway.admin.page_sessions.make_link(Admitted(by))).url.rpartition("/")[2]
    async with opened(tmp_path, [tool("a")], operator_token="another-token-of-this-operator") as there:
        sessions = there.gateway.admin.page_sessions
        assert await sessions.find(cookies["web"]) is None
        assert await sessions.find(cookies["operator"]) is not None
        with pytest.raises(RefusedError, match="used already"):
            await sessions.enter(links["web"])
        await sessions.enter(links["operator"])
    async with opened(tmp_path, [tool("a")], operator_token="the-first-token-of-this-operator") as there:
        assert await there.gateway.admin.page_sessions.find(cookies["web"]) is not None


async def test_links_and_sessions_end(there: Opened) -> None:
    """By the clock on the wall, whichever process looks; a link that ended opens nothing."""
    now = [1_000.0]
    sessions = PageSessions(there.gateway.catalog, lambda: now[0])
    sessions.address = "http://x"
    late = (await sessions.make_link(OWNER)).url.rpartition("/")[2]
    now[0] += LINK_S
    with pytest.raises(RefusedError, match="too old"):
        await sessions.enter(late)
    secret = await sessions.enter((await sessions.make_link(NETWORK)).url.rpartition("/")[2])
    session = await sessions.find(secret)
    assert session is not None and session.admitted.author == "web" and session.csrf not in repr(session)
    elsewhere = PageSessions(there.gateway.catalog, lambda: now[0])
    assert await elsewhere.find(secret) == session
    now[0] += SESSION_S
    assert await sessions.find(secret) is None


async def test_a_link_works_once_whichever_gateway_of_the_store_it_is_opened_at(there: Opened) -> None:
    """And the session goes on at all of them, until it is left at one."""
    own = there.gateway.settings
    async with open_gateway(own, {}, environ=ENVIRON) as other:
        token = (await there.link()).rpartition("/")[2]
        elsewhere = other.admin.page_sessions
        entries = await asyncio.gather(
            elsewhere.enter(token), there.gateway.admin.page_sessions.enter(token), return_exceptions=True
        )
        (secret,) = [each for each in entries if isinstance(each, str)]
        assert [type(each) for each in entries if each is not secret] == [RefusedError]
        for sessions in (elsewhere, there.gateway.admin.page_sessions):
            assert await sessions.find(secret) is not None
        await elsewhere.leave(secret, OWNER)
        assert await there.gateway.admin.page_sessions.find(secret) is None


def test_templates_have_nothing_that_the_escaping_leaves_out() -> None:
    """No markup is taken from anywhere, and nothing is inline."""
    files = sorted((Path(page.__file__).parent / "templates").glob("*.html"))
    assert len(files) > 10
    for file in files:
        text = file.read_text("utf-8")
        assert not re.search(r"\|\s*safe|autoescape|<style|\sstyle=|\son[a-z]+=|javascript:", text), file
        assert re.findall(r"<script[^>]*>", text) in ([], ['<script type="module" src="/ui/static/page.js">']), file


async def test_a_gateway_without_http_has_no_page(there: Opened) -> None:
    """And says how to get one."""
    with pytest.raises(RequestError, match="no HTTP") as caught:
        await PageSessions(there.gateway.catalog).make_link(OWNER)
    assert "mcpproxy serve --http" in caught.value.hint


@pytest.mark.long  # a third of a second of processor time
async def test_the_data_directory_holds_no_secret_of_a_session(tmp_path: Path) -> None:
    """Who reads the store cannot use a link or a session of it."""
    async with opened(tmp_path, [tool("a")]) as there, stranger(there) as found:
        link = await there.link()
        unused = (await there.link()).rpartition("/")[2]
        await found.enter(link)
        secrets = [*found.client.cookies.values(), unused]
        assert secrets and all(len(each) == 43 for each in secrets)
    for file in (tmp_path / "data").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not [each for each in secrets if each.encode() in content], file
