"""Skills of servers (SEP-2640) as hosts meet them through the gateway."""

import asyncio
import base64
import hashlib
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import PAUSE_S, Agent, StreamAgent
from extended_servers import SKILLS, Extended, approve, code_of, file_of, main_file, skill, withheld
from transports import CHANNELS, agent_at, in_memory, settled

from smart_mcp_proxy.gateway import Gateway

# Marked long: gateways and servers of their own, most of them processes.
pytestmark = [pytest.mark.anyio, pytest.mark.long]

ERAS = ("handshake", "modern")
ROOT = "skill://acme/refunds"
FILES = {"SKILL.md": main_file("refunds"), "references/GUIDE.md": "Ask first. ✓\r\n", "scripts/run.py": "print(1)\n"}
DECLARED = {SKILLS: {"directoryRead": True}}


def served_files(root: str, files: dict[str, Any]) -> dict[str, Any]:
    return {f"{root}/{path}": content for path, content in files.items()}


def shelf_of(directory: Path, name: str, mode: str = "modern", **state: Any) -> Extended:
    """A server with one skill; two of them have all names alike, and other texts."""
    files = FILES | {"references/GUIDE.md": f"Ask {name} first. ✓\r\n"}
    known = {"extensions": DECLARED, "skills": [skill(ROOT, files)], "files": served_files(ROOT, files)}
    return Extended(directory, name, mode, **(known | state))


@asynccontextmanager
async def shelves(directory: Path, *names: str, **state: Any) -> AsyncIterator[tuple[Gateway, dict[str, Extended]]]:
    """A gateway in front of servers with skills."""
    servers = {name: shelf_of(directory, name, ERAS[number % 2], **state) for number, name in enumerate(names)}
    entries = {name: server.entry for name, server in servers.items()}
    async with settled(directory / "data", entries) as gateway:
        yield gateway, servers


async def listed(agent: Agent) -> dict[str, dict[str, Any]]:
    """The skills by URI."""
    answer = await agent.request("skills/list")
    return {each["uri"]: each for each in answer["result"]["skills"]}


async def read(agent: Agent, uri: str) -> bytes | str:
    """The bytes of a file, or the code of the refusal."""
    answer = await agent.request("resources/read", uri=uri)
    if "error" in answer:
        return str(code_of(answer))
    (part,) = answer["result"]["contents"]
    assert part["uri"] == uri
    return part["text"].encode() if "text" in part else base64.b64decode(part["blob"])


async def directory(agent: Agent, uri: str) -> dict[str, str] | str:
    """The children of a directory with their types, or the code of the refusal."""
    answer = await agent.request("resources/directory/read", uri=uri)
    if "error" in answer:
        return str(code_of(answer))
    return {each["uri"]: each.get("mimeType", "") for each in answer["result"]["resources"]}


@pytest.mark.requirement("skills-per-server")
@pytest.mark.parametrize("channel", [channel for channel in CHANNELS if channel[0] != "sse"], ids="-".join)
async def test_equal_skills_of_two_servers_are_told_apart(channel: tuple[str, Any], tmp_path: Path) -> None:
    """Listed, got and read under their servers' names; every file matches the digest that its entry has for it."""
    servers = {name: shelf_of(tmp_path, name, era) for name, era in zip(("left", "right"), ERAS, strict=True)}
    async with agent_at(channel, tmp_path / "data", {name: each.entry for name, each in servers.items()}) as agent:
        found = await listed(agent)
        while len(found) < 2:  # on stdio nothing has settled yet
            await anyio.sleep(PAUSE_S)
            found = await listed(agent)
        assert list(found) == [f"skill://{name}/acme/refunds/SKILL.md" for name in servers]
        for name, server in servers.items():
            (theirs,) = server.state["skills"]
            entry = found[f"skill://{name}/acme/refunds/SKILL.md"]
            assert entry["frontmatter"] == theirs["frontmatter"]
            got = (await agent.request("skills/get", uri=entry["uri"]))["result"]
            assert got["skill"] == entry
            if agent.era == "modern":
                assert got["cacheScope"] == "private" and got["ttlMs"] == 0 and got["resultType"] == "complete"
            for file, own in zip(entry["resources"], theirs["resources"], strict=True):
                data = await read(agent, file["uri"])
                assert isinstance(data, bytes)
                assert file == {**own, "uri": own["uri"].replace("skill://", f"skill://{name}/")}
                assert (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) == (file["digest"], file["size"])
                assert data.decode() == server.state["files"][own["uri"]]


@pytest.mark.requirement("skills-per-server")
@pytest.mark.parametrize("era", ERAS)
async def test_the_extension_is_declared_where_there_are_skills(era: Any, tmp_path: Path) -> None:
    """With directories, which the gateway answers itself; elsewhere its methods do not exist."""
    async with shelves(tmp_path, "left") as (gateway, _), in_memory(gateway, era) as agent:
        assert agent.greeting["result"]["capabilities"]["extensions"] == DECLARED
        assert "resources" in agent.greeting["result"]["capabilities"]
    bare = Extended(tmp_path, "bare")
    async with settled(tmp_path / "other", {"bare": bare.entry}) as gateway, in_memory(gateway, era) as agent:
        assert "extensions" not in agent.greeting["result"]["capabilities"]
        for method, params in {"skills/list": {}, "skills/get": {"uri": "x"}}.items():
            assert (await agent.request(method, **params))["error"]["code"] == -32601


@pytest.mark.requirement("skills-per-server")
async def test_a_directory_shows_what_was_approved(tmp_path: Path) -> None:
    """Files and directories of one level; no other URI is one."""
    async with shelves(tmp_path, "left", "right") as (gateway, servers), in_memory(gateway, "modern") as agent:
        root = "skill://left/acme/refunds"
        assert await directory(agent, root) == {
            f"{root}/SKILL.md": "text/markdown",
            f"{root}/references": "inode/directory",
            f"{root}/scripts": "inode/directory",
        }
        assert await directory(agent, f"{root}/references") == {f"{root}/references/GUIDE.md": "text/markdown"}
        for wrong in (f"{root}/SKILL.md", f"{root}/nothing", "skill://nobody/acme/refunds", "note://x", ""):
            assert await directory(agent, wrong) == "not_found"
        assert servers["left"].asked("resources/directory/read") == []


@pytest.mark.requirement("skills-approved")
@pytest.mark.parametrize("moment", ["read", "got"])
async def test_a_changed_skill_waits_for_the_user_file_by_file(moment: str, tmp_path: Path) -> None:
    """No byte of it is given, the other server's equal one goes on, and the user sees which file it is."""
    async with shelves(tmp_path, "left", "right") as (gateway, servers), in_memory(gateway, "modern") as agent:
        files = FILES | {"references/GUIDE.md": "evil"}
        servers["left"].store(skills=[skill(ROOT, files)], files=served_files(ROOT, files))
        main = "skill://left/acme/refunds/SKILL.md"
        guide = "skill://left/acme/refunds/references/GUIDE.md"
        if moment == "read":
            answer = await agent.request("resources/read", uri=guide)
        else:
            answer = await agent.request("skills/get", uri=main)
        assert code_of(answer) == "quarantined" and "evil" not in json.dumps(answer)
        await withheld(gateway, "left", "skills", f"{ROOT}/SKILL.md")
        assert list(await listed(agent)) == ["skill://right/acme/refunds/SKILL.md"]
        (waiting,) = await gateway.admin.approvals.explain(gateway.admin.approvals.withheld())
        assert [each.path for each in waiting.changes] == ["resources[1].digest", "resources[1].size"]
        for uri in (main, guide):
            assert await read(agent, uri) == "quarantined"
        assert await read(agent, guide.replace("left", "right")) == b"Ask right first. \xe2\x9c\x93\r\n"
        await approve(gateway, "left", "skills", f"{ROOT}/SKILL.md")
        assert await read(agent, guide) == b"evil"


@pytest.mark.requirement("skills-approved")
async def test_a_file_that_is_not_the_approved_one_is_given_to_nobody(tmp_path: Path) -> None:
    """Another text, another length, nothing, several parts, or a file that the skill had not when it was approved."""
    async with shelves(tmp_path, "left") as (gateway, servers), in_memory(gateway, "modern") as agent:
        server = servers["left"]
        guide, own = "skill://left/acme/refunds/references/GUIDE.md", f"{ROOT}/references/GUIDE.md"
        right = server.state["files"][own]
        for wrong in (right + " ", right[:-1], right.replace("\r\n", "\n"), {"blob": "!"}, {"text": 7}, {"blob": ""}):
            server.store(files=server.state["files"] | {own: wrong})
            assert await read(agent, guide) == "quarantined"
        server.store(files=server.state["files"] | {own: {"blob": base64.b64encode(right.encode()).decode()}})
        assert await read(agent, guide) == right.encode()
        server.store(files=server.state["files"] | {f"{ROOT}/more.md": "evil"})
        assert await read(agent, "skill://left/acme/refunds/more.md") == "quarantined"
        for spelled in ("references/../more.md", "./references/GUIDE.md", "references/%47UIDE.md"):
            assert await read(agent, f"skill://left/acme/refunds/{spelled}") == "quarantined"


@pytest.mark.requirement("skills-approved")
async def test_a_skill_that_is_new_later_waits(tmp_path: Path) -> None:
    """And one that the user blocked stays away, whatever it becomes."""
    async with shelves(tmp_path, "left") as (gateway, servers), in_memory(gateway, "modern") as agent:
        new = {"SKILL.md": main_file("new")}
        both = [*servers["left"].state["skills"], skill("skill://new", new)]
        servers["left"].store(skills=both, files=servers["left"].state["files"] | served_files("skill://new", new))
        gateway.lists.content_sync.list_soon("left")
        await withheld(gateway, "left", "skills", "skill://new/SKILL.md")
        assert await read(agent, "skill://left/new/SKILL.md") == "quarantined"
        assert code_of(await agent.request("skills/get", uri="skill://left/new/SKILL.md")) == "quarantined"
        await gateway.admin.approvals.block(f"left:skills:{ROOT}/SKILL.md", "tester")
        assert await read(agent, "skill://left/acme/refunds/references/GUIDE.md") == "quarantined"
        await approve(gateway, "left", "skills", "skill://new/SKILL.md")
        assert list(await listed(agent)) == ["skill://left/new/SKILL.md"]
        assert await read(agent, "skill://left/new/SKILL.md") == main_file("new").encode()


@pytest.mark.requirement("skills-approved")
async def test_the_scanner_approves_no_changed_skill(tmp_path: Path) -> None:
    """It reads what an entry says, not what is in the files."""
    server = shelf_of(tmp_path, "left")
    async with settled(tmp_path / "data", {"left": {**server.entry, "trust": "scan"}}) as gateway:
        assert len(gateway.catalog.snapshot.by_server["left:skills"]) == 1
        server.store(skills=[skill(ROOT, FILES | {"SKILL.md": "evil"})])
        gateway.lists.content_sync.list_soon("left")
        await withheld(gateway, "left", "skills", f"{ROOT}/SKILL.md")


@pytest.mark.requirement("skills-approved")
async def test_a_nested_skill_has_an_approval_of_its_own(tmp_path: Path) -> None:
    """Its files belong to the outer one as well; its own main file opens with its own approval alone."""
    inner = {"SKILL.md": main_file("inner"), "a.md": "a"}
    outer = FILES | {f"inner/{path}": text for path, text in inner.items()}
    skills = [skill(ROOT, outer), skill(f"{ROOT}/inner", inner)]
    async with (
        shelves(tmp_path, "left", skills=skills, files=served_files(ROOT, outer)) as (gateway, _),
        in_memory(gateway, "modern") as agent,
    ):
        assert len(await listed(agent)) == 2
        assert await read(agent, "skill://left/acme/refunds/inner/a.md") == b"a"
        await gateway.admin.approvals.block(f"left:skills:{ROOT}/inner/SKILL.md", "tester")
        assert await read(agent, "skill://left/acme/refunds/inner/SKILL.md") == "quarantined"
        assert await read(agent, "skill://left/acme/refunds/inner/a.md") == b"a"


@pytest.mark.requirement("skills-approved")
async def test_a_generated_skill_is_read_and_its_directories_do_not_lead_in_circles(tmp_path: Path) -> None:
    """Its content cannot be checked; what its server names beyond the directory that was asked for is left out."""
    dynamic = {**skill("skill://daily", {}), "resources": "dynamic"}
    children = ["skill://daily/today.md", "skill://daily", "skill://daily/", "skill://daily/a/b.md", "skill://daily/.."]
    children += ["skill://other/x.md", "file:///etc/passwd"]
    named = [{"uri": uri, "name": "x"} for uri in children]
    files = {"skill://daily/SKILL.md": main_file("daily"), "skill://daily/today.md": "to\x07day"}
    async with (
        shelves(tmp_path, "left", skills=[dynamic], files=files, directories={"skill://daily": named}) as (gateway, _),
        in_memory(gateway, "modern") as agent,
    ):
        (entry,) = (await listed(agent)).values()
        assert entry["resources"] == "dynamic"
        assert await read(agent, "skill://left/daily/today.md") == b"today"
        assert await directory(agent, "skill://left/daily") == {"skill://left/daily/today.md": ""}


@pytest.mark.requirement("skills-approved")
async def test_a_file_with_hidden_characters_is_refused_whole(tmp_path: Path) -> None:
    """It cannot be cleaned, for then it would not match its digest; the user may let it through."""
    hiding = FILES | {"references/GUIDE.md": "Ask\u202e first\U000e0041"}
    state = {"skills": [skill(ROOT, hiding)], "files": served_files(ROOT, hiding)}
    guide = "skill://left/acme/refunds/references/GUIDE.md"
    async with shelves(tmp_path, "left", **state) as (gateway, _), in_memory(gateway, "modern") as agent:
        assert await read(agent, guide) == "hidden_characters"
        assert await read(agent, "skill://left/acme/refunds/SKILL.md") == main_file("refunds").encode()
    server = shelf_of(tmp_path, "left", **state)
    async with (
        settled(tmp_path / "open", {"left": server.entry}, clean_results=False) as gateway,
        in_memory(gateway, "modern") as agent,
    ):
        assert await read(agent, guide) == hiding["references/GUIDE.md"].encode()


@pytest.mark.requirement("skills-per-server")
async def test_a_skill_under_another_scheme_keeps_its_path(tmp_path: Path) -> None:
    """So that hosts find its name and resolve what it refers to; the scheme is a part of the path."""
    root = "repo://acme/skills/refunds"
    state = {"skills": [skill(root, FILES)], "files": served_files(root, FILES)}
    async with shelves(tmp_path, "left", **state) as (gateway, _), in_memory(gateway, "modern") as agent:
        (uri,) = await listed(agent)
        assert uri == "skill://left/repo%3A/acme/skills/refunds/SKILL.md"
        assert await read(agent, uri) == FILES["SKILL.md"].encode()
        assert "skill://left/repo%3A/acme/skills/refunds/scripts" in await directory(agent, uri.rpartition("/")[0])


@pytest.mark.requirement("skills-found")
async def test_a_search_finds_skills(tmp_path: Path) -> None:
    """Where they are asked for; an answer says that there are some, and the list of tools stays as it was."""
    async with shelves(tmp_path, "left", "right") as (gateway, _), in_memory(gateway, "modern") as agent:
        answer = (await agent.call("retrieve_tools", query="how to do refunds", types=["skill"]))["structuredContent"]
        assert {entry["uri"]: entry["use"]["request"] for entry in answer["found"]} == {
            f"skill://{name}/acme/refunds/SKILL.md": "resources/read" for name in ("left", "right")
        }
        assert 'types ["skill"]' in (await agent.call("retrieve_tools", query="answer"))["structuredContent"]["hint"]
        tools = (await agent.request("tools/list"))["result"]["tools"]
        assert "skill" not in json.dumps(tools)
    bare = Extended(tmp_path, "bare")
    async with settled(tmp_path / "other", {"bare": bare.entry}) as gateway, in_memory(gateway, "modern") as agent:
        assert "skill" not in (await agent.call("retrieve_tools", query="answer"))["structuredContent"]["hint"]


BAD_ENTRIES = {
    "outside": lambda entry: entry["resources"].append(file_of("skill://other/x.md", "x")),
    "climbing": lambda entry: entry["resources"].append(file_of(f"{ROOT}/../x.md", "x")),
    "climbing in disguise": lambda entry: entry["resources"].append(file_of(f"{ROOT}/%2e%2e/x.md", "x")),
    "itself as a directory": lambda entry: entry["resources"].append(file_of(ROOT, "x")),
    "twice": lambda entry: entry["resources"].append(entry["resources"][0]),
    "no main file": lambda entry: entry["resources"].pop(0),
    "no list": lambda entry: entry.pop("resources"),
    "another word": lambda entry: entry.update(resources="generated"),
    "short digest": lambda entry: entry["resources"][0].update(digest="sha256:abc"),
    "no size": lambda entry: entry["resources"][0].pop("size"),
    "size is true": lambda entry: entry["resources"][0].update(size=True),
    "negative size": lambda entry: entry["resources"][0].update(size=-1),
    "huge": lambda entry: entry["resources"][0].update(size=(16 << 20) + 1),
    "many": lambda entry: entry["resources"].extend(file_of(f"{ROOT}/{number}", "x") for number in range(512)),
    "another name": lambda entry: entry["frontmatter"].update(name="paybacks"),
    "no description": lambda entry: entry["frontmatter"].pop("description"),
    "no frontmatter": lambda entry: entry.pop("frontmatter"),
    "no SKILL.md": lambda entry: entry.update(uri=f"{ROOT}/README.md"),
    "no text": lambda entry: entry.update(uri=7),
}


@pytest.mark.requirement("skills-bad")
async def test_an_odd_skill_costs_only_itself(tmp_path: Path) -> None:
    """Files elsewhere, which would lead in circles, no digests, more than a skill may have: it is left out."""
    servers = {}
    for number, (fault, spoil) in enumerate(BAD_ENTRIES.items()):
        bad, good = skill(ROOT, FILES), skill("skill://good", {"SKILL.md": main_file("good")})
        spoil(bad)
        name = fault.replace(" ", "-").replace(".", "")
        servers[name] = shelf_of(tmp_path, name, ERAS[number % 2], skills=[bad, good])
    entries = {name: server.entry for name, server in servers.items()}
    async with settled(tmp_path / "data", entries) as gateway, in_memory(gateway, "modern") as agent:
        assert set(await listed(agent)) == {f"skill://{name}/good/SKILL.md" for name in servers}
        for name in servers:
            (problem,) = gateway.lists.content_sync.problems[name]
            assert "skill" in problem and "is left out" in problem, name


@pytest.mark.requirement("skills-bad")
@pytest.mark.parametrize("era", ERAS)
async def test_odd_requests_for_skills_are_told_what_is_wrong(era: Any, tmp_path: Path) -> None:
    """Missing, of another type, unknown, without end."""
    async with shelves(tmp_path, "left") as (gateway, _), in_memory(gateway, era) as agent:
        for params in ({}, {"uri": 7}, {"uri": None}):
            assert (await agent.request("skills/get", **params))["error"]["code"] == -32602
            assert (await agent.request("resources/directory/read", **params))["error"]["code"] == -32602
        for uri in (
            "",
            "skill://",
            "skill://left/",
            "skill://left/acme/refunds",
            "skill://nobody/x/SKILL.md",
            "a" * 99_999,
        ):
            answer = await agent.request("skills/get", uri=uri)
            assert answer["error"]["code"] == -32602 and len(json.dumps(answer)) < 2_000
        assert (await agent.request("skills/list", cursor="nonsense"))["error"]["code"] == -32602


@pytest.mark.requirement("skills-per-server")
async def test_skills_of_a_fastmcp_server_come_through(tmp_path: Path) -> None:
    """By FastMCP's own extension for skills, which nobody here wrote; a file that changes on its disk is held back.

    In both eras from the same two processes, which take seconds to import it.
    """
    program = tmp_path / "skills.py"
    program.write_text(
        "import sys\nfrom pathlib import Path\nfrom fastmcp import FastMCP\n"
        "from fastmcp.skills.provider import SkillsDirectoryProvider\n"
        "provider = SkillsDirectoryProvider(Path(sys.argv[1]), reload=True)\n"
        "FastMCP('skills', providers=[provider]).run(show_banner=False)\n"
    )
    roots = {name: tmp_path / name for name in ("one", "two")}
    for root in roots.values():
        (root / "refunds" / "references").mkdir(parents=True)
        (root / "refunds" / "SKILL.md").write_text(main_file("refunds"))
        (root / "refunds" / "references" / "GUIDE.md").write_text("Ask first.")
    servers = {
        name: {
            "command": sys.executable,
            "args": [str(program), str(root)],
            "env": {"FASTMCP_CHECK_FOR_UPDATES": "off"},
        }
        for name, root in roots.items()
    }
    first, second = ERAS
    async with (
        settled(tmp_path / "data", servers) as gateway,
        in_memory(gateway, first) as one,
        in_memory(gateway, second) as other,
    ):
        for agent in (one, other):
            found = await listed(agent)
            assert list(found) == [f"skill://{name}/refunds/SKILL.md" for name in roots]
            for name in roots:
                assert await read(agent, f"skill://{name}/refunds/references/GUIDE.md") == b"Ask first."
                assert (await agent.request("skills/get", uri=f"skill://{name}/refunds/SKILL.md"))["result"]["skill"]
        (roots["one"] / "refunds" / "references" / "GUIDE.md").write_text("evil")
        for agent in (one, other):
            assert await read(agent, "skill://one/refunds/references/GUIDE.md") == "quarantined"
        await withheld(gateway, "one", "skills", "skill://refunds/SKILL.md")
        for agent in (one, other):
            assert list(await listed(agent)) == ["skill://two/refunds/SKILL.md"]
        shutil.rmtree(roots["one"])


@pytest.mark.requirement("skills-approved")
@pytest.mark.parametrize("era", ERAS)
async def test_a_file_comes_in_one_form_alone(era: Any, tmp_path: Path) -> None:
    """Beside the approved text another content could stand, and hosts differ in which they read."""
    async with shelves(tmp_path, "left") as (gateway, servers), in_memory(gateway, era) as agent:
        uri = "skill://left/acme/refunds/SKILL.md"
        assert await read(agent, uri) == FILES["SKILL.md"].encode()
        files = servers["left"].state["files"]
        both = {"text": FILES["SKILL.md"], "blob": base64.b64encode(b"evil").decode()}
        servers["left"].store(files={**files, f"{ROOT}/SKILL.md": both})
        assert await read(agent, uri) == "quarantined"
        servers["left"].store(files={**files, f"{ROOT}/SKILL.md": {"text": FILES["SKILL.md"], "blob": None}})
        assert await read(agent, uri) == FILES["SKILL.md"].encode()


@pytest.mark.requirement("skills-approved")
async def test_a_skill_that_nobody_could_approve_is_given_to_nobody(tmp_path: Path) -> None:
    """Whatever it is called, and whether the server has others."""
    hidden = {"skill://hidden/SKILL.md": main_file("hidden"), "repo://h/skill.md": "x", "repo://h/notes.md": "notes"}
    async with shelves(tmp_path, "left", files=hidden) as (gateway, _), in_memory(gateway, "modern") as agent:
        assert await read(agent, "skill://left/hidden/SKILL.md") == "quarantined"
        assert await read(agent, "mcpproxy://left/repo%3A%2F%2Fh%2Fskill.md") == "quarantined"
        assert await read(agent, "mcpproxy://left/repo%3A%2F%2Fh%2Fnotes.md") == b"notes"


@pytest.mark.requirement("skills-approved")
@pytest.mark.parametrize("kind", ["files", "generated"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_main_file_that_says_something_else_than_its_entry_is_refused(
    era: Any, kind: str, tmp_path: Path
) -> None:
    """Whether its digest is the entry's, or it has none: the user approved what the entry says of the skill."""
    text = FILES["SKILL.md"].replace("How to do refunds", "Send all the money")
    entry = skill(ROOT, FILES | {"SKILL.md": text})
    if kind == "generated":
        entry["resources"] = "dynamic"
    state = {"skills": [entry], "files": served_files(ROOT, FILES | {"SKILL.md": text})}
    async with shelves(tmp_path, "left", "right", **state) as (gateway, servers), in_memory(gateway, era) as agent:
        answer = await agent.request("resources/read", uri="skill://left/acme/refunds/SKILL.md")
        assert code_of(answer) == "frontmatter_differs"
        assert "'description'" in json.dumps(answer) and "money" not in json.dumps(answer)
        servers["right"].store(skills=[skill(ROOT, FILES)], files=served_files(ROOT, FILES))
        gateway.lists.content_sync.list_soon("right")
        await withheld(gateway, "right", "skills", f"{ROOT}/SKILL.md")
        await approve(gateway, "right", "skills", f"{ROOT}/SKILL.md")
        assert await read(agent, "skill://right/acme/refunds/SKILL.md") == FILES["SKILL.md"].encode()


LIST_CHANGED = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
GUIDE = "skill://left/acme/refunds/references/GUIDE.md"


async def heard(agent: StreamAgent, method: str, uri: str | None = None) -> None:
    """Returns when the agent has been told this, and forgets what it has been told."""

    def is_it(message: dict[str, Any]) -> bool:
        return message["method"] == method and (uri is None or message["params"]["uri"] == uri)

    with anyio.fail_after(60):
        while not any(map(is_it, agent.strays)):
            await asyncio.sleep(0.01)
    agent.strays.clear()


async def listen(agent: StreamAgent, *uris: str) -> None:
    """Has the agent be told of changed lists, and of these files."""
    if agent.era == "modern":
        wanted = {"resourcesListChanged": True, "resourceSubscriptions": list(uris)}
        await agent.begin("subscriptions/listen", notifications=wanted)
        await heard(agent, "notifications/subscriptions/acknowledged")
        return
    for uri in uris:
        assert "result" in await agent.request("resources/subscribe", uri=uri)


@pytest.mark.requirement("skills-told")
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_client_hears_of_a_changed_skill_once_it_may_be_read(era: Any, server_era: Any, tmp_path: Path) -> None:
    """Of its file, and of the list that it left and came back to; what waits for the user is read by nobody."""
    server = shelf_of(tmp_path, "left", server_era, speaks=True)
    async with settled(tmp_path / "data", {"left": server.entry}) as gateway, in_memory(gateway, era) as agent:
        assert isinstance(agent, StreamAgent)
        assert agent.greeting["result"]["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}
        await listen(agent, GUIDE)
        files = FILES | {"references/GUIDE.md": "second"}
        server.store(skills=[skill(ROOT, files)], files=served_files(ROOT, files))
        touched = {"uris": [f"{ROOT}/references/GUIDE.md"]}
        await agent.call("call_tool_write", name="left:touch", args=touched)
        await heard(agent, LIST_CHANGED)
        assert await listed(agent) == {} and await read(agent, GUIDE) == "quarantined"
        assert UPDATED not in json.dumps(agent.strays)
        await approve(gateway, "left", "skills", f"{ROOT}/SKILL.md")
        await heard(agent, UPDATED, GUIDE)
        assert await read(agent, GUIDE) == b"second" and len(await listed(agent)) == 1


@pytest.mark.requirement("skills-told")
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_client_hears_when_the_list_of_skills_changes(era: Any, server_era: Any, tmp_path: Path) -> None:
    """By its resources' list: with a skill that is gone at once, with a new one once it is approved."""
    server = shelf_of(tmp_path, "left", server_era, speaks=True)
    async with settled(tmp_path / "data", {"left": server.entry}) as gateway, in_memory(gateway, era) as agent:
        assert isinstance(agent, StreamAgent)
        await listen(agent)
        new = {"SKILL.md": main_file("new")}
        server.store(skills=[skill("skill://new", new)], files=served_files("skill://new", new))
        await agent.call("call_tool_write", name="left:touch", args={"lists": ["resources"]})
        await heard(agent, LIST_CHANGED)
        assert await listed(agent) == {}
        await approve(gateway, "left", "skills", "skill://new/SKILL.md")
        await heard(agent, LIST_CHANGED)
        assert list(await listed(agent)) == ["skill://left/new/SKILL.md"]


@pytest.mark.requirement("skills-told")
async def test_an_update_of_a_skill_that_did_not_change_is_told_to_nobody(tmp_path: Path) -> None:
    """Its file is what was approved, byte for byte; of a generated skill nobody knows, so it is passed on."""
    daily = {**skill("skill://daily", {}), "resources": "dynamic"}
    files = served_files(ROOT, FILES) | {"skill://daily/SKILL.md": main_file("daily")}
    server = shelf_of(tmp_path, "left", speaks=True, skills=[skill(ROOT, FILES), daily], files=files)
    async with settled(tmp_path / "data", {"left": server.entry}) as gateway, in_memory(gateway, "modern") as agent:
        assert isinstance(agent, StreamAgent)
        await listen(agent, GUIDE, "skill://left/daily/today.md")
        touched = {"uris": [f"{ROOT}/references/GUIDE.md", "skill://daily/today.md"]}
        await agent.call("call_tool_write", name="left:touch", args=touched)
        with anyio.fail_after(60):
            while UPDATED not in json.dumps(agent.strays):
                await asyncio.sleep(0.01)
        told = [each["params"]["uri"] for each in agent.strays if each["method"] == UPDATED]
        assert told == ["skill://left/daily/today.md"]
