"""Approvals by two: a changed definition is served once two different people have approved the same digest."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from page_gateway import Opened, opened, tool
from plain_http import plain_client
from sqlalchemy import text

from smart_mcp_proxy.catalog import Ballot, Voter
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.gateway.admin.agent_tokens import AgentTokens, Scope
from smart_mcp_proxy.gateway.admin.people import require_people
from smart_mcp_proxy.gateway.admin.roles import OWNER, Admitted
from smart_mcp_proxy.models import Principal, Role
from smart_mcp_proxy.names import IDENTITIES, shelf
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.rest import operator_token

pytestmark = pytest.mark.anyio
ANOTHER = [tool("a", "Does another thing."), tool("b")]


async def make_headers(there: Opened, name: str, role: Role = "approver", made_by: str = "") -> dict[str, str]:
    by = Admitted("web", "admin", Principal(made_by)) if made_by else OWNER
    made = await there.gateway.admin.agent_tokens.create(name, Scope(role=role), by)
    return {"authorization": f"Bearer {made.secret}"}


async def approve(there: Opened, headers: dict[str, str], hash_: str) -> Any:
    async with plain_client(base_url=there.base, headers=headers, timeout=60) as client:
        body = {"tools": [{"name": "s:a", "hash": hash_}]}
        return (await client.post("/api/v1/approvals/approve", json=body)).json()


def read_waiting_hash(there: Opened) -> str:
    (waiting,) = there.gateway.admin.approvals.withheld("s")
    return waiting.record.change_hash


@pytest.mark.long  # a third of a second of processor time
async def test_two_people_approve_and_one_twice_does_not(tmp_path: Path) -> None:
    """Nor with a token that the same person made; the log says who, when, and what was shown."""
    async with opened(tmp_path, [tool("a"), tool("b")], approvals=2) as there:
        await there.turn(ANOTHER)
        hash_ = read_waiting_hash(there)
        ann, bob = await make_headers(there, "ann"), await make_headers(there, "bob")
        puppet = await make_headers(there, "puppet", made_by="agent-1")
        for headers in (ann, ann, puppet):
            done = await approve(there, headers, hash_)
            assert (done["approved"], done["counted"]) == ([], ["s:a"])
            assert there.gateway.visible.find("s:a") is None
        async with plain_client(base_url=there.base, headers=bob, timeout=60) as client:
            (waiting,) = (await client.get("/api/v1/approvals")).json()["tools"]
            assert waiting["approvals"].startswith("1 of 2, by ")
        assert (await approve(there, bob, hash_))["approved"] == ["s:a"]
        assert there.gateway.visible.find("s:a") is not None
        async with asyncio.timeout(30):
            while len(records := await there.records("approval")) < 4:
                await asyncio.sleep(0)
        assert [each["principal"] for each in records] == ["agent-2", "agent-3", "agent-1", "agent-1"]
        assert [each["detail"]["approvals"] for each in records] == ["2 of 2", "1 of 2", "1 of 2", "1 of 2"]
        assert records[0]["detail"]["hash"] == hash_ and "description" in records[0]["detail"]["shown"]


@pytest.mark.long  # a third of a second of processor time
async def test_tokens_that_tokens_made_are_one_person_and_a_revoked_one_none(tmp_path: Path) -> None:
    """However long the chain is, and though the definition waits as before."""
    async with opened(tmp_path, [tool("a"), tool("b")], approvals=2) as there:
        await there.turn(ANOTHER)
        hash_, tokens = read_waiting_hash(there), [await make_headers(there, "root", "admin", made_by="ann")]
        for name in ("one", "two"):
            async with plain_client(base_url=there.base, headers=tokens[-1], timeout=60) as client:
                made = (await client.post("/api/v1/tokens", json={"name": name, "role": "admin"})).json()
            tokens.append({"authorization": f"Bearer {made['token']}"})
        for headers in tokens:
            assert (await approve(there, headers, hash_))["counted"] == ["s:a"]
        await there.gateway.admin.approvals.block("s:a", "operator")
        eve, bob = await make_headers(there, "eve"), await make_headers(there, "bob")
        assert (await approve(there, eve, hash_))["counted"] == ["s:a"]
        await there.gateway.admin.agent_tokens.revoke("eve")
        assert (await approve(there, bob, hash_))["counted"] == ["s:a"]
        assert (await approve(there, tokens[0], hash_))["approved"] == ["s:a"]


@pytest.mark.long  # a third of a second of processor time
async def test_what_was_approved_with_a_token_that_a_person_made_ends_with_it(tmp_path: Path) -> None:
    """Somebody else may have had it; what the person approved themselves stands."""
    async with opened(tmp_path, [tool("a"), tool("b")], approvals=2) as there:
        await there.turn(ANOTHER)
        hash_, bob = read_waiting_hash(there), await make_headers(there, "bob")
        for name, made_by in (("lost", "ann"), ("kept", "ann")):
            assert (await approve(there, await make_headers(there, name, made_by=made_by), hash_))["counted"]
            await there.gateway.admin.agent_tokens.revoke("lost")
            assert len(await there.gateway.catalog.find_votes()) == (name == "kept")
            await make_headers(there, "lost", made_by=made_by)
        assert (await approve(there, bob, hash_))["approved"] == ["s:a"]


async def test_two_who_approve_at_the_same_moment_are_both_told_so(tmp_path: Path) -> None:
    """Whichever is counted last, at whichever gateway: the other's answer is no refusal."""
    async with opened(tmp_path, [tool("a"), tool("b")], approvals=2) as there:
        await there.turn(ANOTHER)
        catalog, hash_ = there.gateway.catalog, read_waiting_hash(there)
        first, key = catalog.approve, there.gateway.admin.approvals.withheld("s")[0].record.key

        async def approve_after(*args: Any, **options: Any) -> Any:
            done = await first(*args, **options)
            await first({key: hash_}, "bob", ballot=Ballot(Voter("bob", "bob"), {key: 2}, {}))
            return done

        catalog.approve = approve_after  # type: ignore[method-assign]
        done = await approve(there, await make_headers(there, "ann"), hash_)
        assert (done["approved"], done["counted"]) == ([], ["s:a"])
        assert there.gateway.visible.find("s:a") is not None


@pytest.mark.long  # a third of a second of processor time
async def test_what_a_server_lists_that_one_person_let_in_waits_for_two(tmp_path: Path) -> None:
    """Its first list as well: whoever may add servers could bring in anything alone."""
    others = {"n": {"command": "true", "quarantined": True}}
    async with opened(tmp_path, [tool("a"), tool("b")], others, approvals=2) as there:
        headers = await make_headers(there, "ann")
        async with plain_client(base_url=there.base, headers=headers, timeout=60) as client:
            assert (await client.post("/api/v1/servers/n/approve")).json()["quarantined"] is False
        catalog = there.gateway.catalog
        for place in ("n", *(shelf("n", kind) for kind in IDENTITIES)):
            assert catalog.is_known(place)
        await catalog.sync("n", [tool("a")])
        (waiting,) = there.gateway.admin.approvals.withheld("n")
        assert (waiting.record.key.tool, there.gateway.visible.find("n:a")) == ("a", None)


@pytest.mark.long  # a third of a second of processor time
async def test_a_vote_is_for_one_definition_and_ends_with_a_block(tmp_path: Path) -> None:
    """The operator's token is one person, too."""
    async with opened(tmp_path, [tool("a"), tool("b")], approvals=2) as there:
        ann, bob = await make_headers(there, "ann"), await make_headers(there, "bob")
        own = {"authorization": f"Bearer {operator_token(there.gateway.settings)}"}
        await there.turn(ANOTHER)
        assert (await approve(there, ann, read_waiting_hash(there)))["counted"] == ["s:a"]
        await there.turn([tool("a", "Does a third thing."), tool("b")])
        third = read_waiting_hash(there)
        assert (await approve(there, bob, third))["counted"] == ["s:a"]
        await there.gateway.admin.approvals.block("s:a", "operator")
        assert (await approve(there, ann, third))["counted"] == ["s:a"]
        assert (await approve(there, own, third))["approved"] == ["s:a"]


async def test_a_vote_that_no_gateway_has_sealed_does_not_count(tmp_path: Path) -> None:
    """Written into the database by something else, or changed there."""
    async with opened(tmp_path, [tool("a"), tool("b")], approvals=2) as there:
        ann = await make_headers(there, "ann")
        await there.turn(ANOTHER)
        hash_ = read_waiting_hash(there)
        await approve(there, ann, hash_)
        forged = text("UPDATE approval_votes SET person = 'agent-9'")
        await there.gateway.catalog.write(lambda connection: connection.execute(forged))
        assert (await approve(there, ann, hash_))["counted"] == ["s:a"]
        assert there.gateway.visible.find("s:a") is None


@pytest.mark.long  # a third of a second of processor time
async def test_a_server_may_ask_for_two_and_no_policy_is_one_of_them(tmp_path: Path) -> None:
    """Trust in a server approves nothing then."""
    async with opened(tmp_path, [tool("a"), tool("b")], approvals=2, trust="trusted") as there:
        await there.turn(ANOTHER)
        assert there.gateway.visible.find("s:a") is None
    servers = {"s": ServerConfig("s", "stdio", approvals=2)}
    async with opened(tmp_path, [tool("a"), tool("b")]) as there:
        tokens = there.gateway.admin.agent_tokens
        for settings in (Settings(approvals=2), Settings()):
            with pytest.raises(ConfigError, match=r"2 different people are to approve what changes .* and there is 1"):
                await require_people(settings, servers, tokens, is_http=True)
        await make_headers(there, "ann", "viewer")
        with pytest.raises(ConfigError):
            await require_people(Settings(), servers, tokens, is_http=True)
        await make_headers(there, "bob")
        await require_people(Settings(), servers, tokens, is_http=True)
        with pytest.raises(ConfigError):
            await require_people(Settings(), servers, tokens, is_http=False)


async def test_only_those_who_may_approve_and_still_can_are_counted_at_start(tmp_path: Path) -> None:
    """Not whoever signs in without that role, nor who had a token that has expired."""
    async with opened(tmp_path, [tool("a")]) as there:
        signed = {"approvals": 2, "jwt_public_key": "key"}
        tokens = AgentTokens(there.gateway.catalog, lambda: there.gateway.catalog.now_s() + 120)
        await there.gateway.admin.agent_tokens.create("ann", Scope(role="approver", expires_in_s=60))
        await require_people(Settings(approvals=2), {}, AgentTokens(there.gateway.catalog), is_http=True)
        for roles in ((), ("devs=operator",)):
            with pytest.raises(ConfigError, match="there is 1"):
                await require_people(Settings(**signed, group_roles=roles), {}, tokens, is_http=True)
        await require_people(Settings(**signed, group_roles=("devs=approver",)), {}, tokens, is_http=True)
