"""Lists of people at two gateways on one store: neither takes away what the other stores, in whatever order they do."""

from collections.abc import Iterator
from typing import Any

import pytest
from store_places import MakeTool, OpenCatalog, StorePlace

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.indexing.list_sync import TOOLS
from smart_mcp_proxy.gateway.indexing.person_lists import PersonLists, for_people
from smart_mcp_proxy.upstream import PersonalUpstream, ToolListing

pytestmark = pytest.mark.anyio

ORDERS = ("read here, listed and stored there", "listed there, read here, stored there")


class Connection:
    def __init__(self, *tools: dict[str, Any]) -> None:
        self._tools = tools

    async def list_tools(self) -> ToolListing:
        return ToolListing(self._tools)


class OnePerson(PersonalUpstream):
    """A server to which one person is connected at a gateway."""

    def __init__(self, person: str, *tools: dict[str, Any]) -> None:
        self.name, self.unlisted = "s", {}
        self._connections_of: Any = (person, Connection(*tools))

    def list_connected(self) -> Iterator[Any]:
        return iter([self._connections_of])


class Here:
    """A gateway with its catalog, at which one person is connected."""

    def __init__(self, catalog: Catalog, person: str) -> None:
        self.catalog, self._person = catalog, person
        self.lists = PersonLists(catalog, lambda: None)
        self._listing = ToolListing()

    async def fetch(self, *tools: dict[str, Any]) -> None:
        """Lists to the person, and stores who was listed what."""
        (kind,) = for_people(TOOLS, self.lists, self.catalog)
        self._listing = await kind.fetch(OnePerson(self._person, *tools))

    async def store(self) -> None:
        """Stores what was fetched."""
        await self.catalog.sync("s", self._listing.definitions, keep=self._listing.keep)

    async def list(self, *tools: dict[str, Any]) -> None:
        await self.fetch(*tools)
        await self.store()

    async def names(self) -> dict[str, str]:
        await self.catalog.refresh()
        return {key.tool: record.change_hash for key, record in self.catalog.snapshot.by_key.items()}


async def interleave(order: str, ann: Here, bob: Here, common: dict[str, Any], *bobs: dict[str, Any]) -> None:
    if order == ORDERS[0]:
        await ann.fetch(common)
        await bob.list(common, *bobs)
    else:
        await bob.fetch(common, *bobs)
        await ann.fetch(common)
        await bob.store()
    await ann.store()


@pytest.mark.parametrize("order", ORDERS)
async def test_what_another_gateway_stores_meanwhile_stays(
    order: str, open_catalog: OpenCatalog, tool: MakeTool
) -> None:
    """What is new there, and what has another definition there since."""
    async with open_catalog() as one, open_catalog() as two:
        ann, bob = Here(one, "ann"), Here(two, "bob")
        await interleave(order, ann, bob, tool("all"), tool("secret"))
        assert (await ann.names()).keys() == (await bob.names()).keys() == {"all", "secret"}
        (id_,) = (record.id for key, record in two.snapshot.by_key.items() if key.tool == "secret")
        await interleave(order, ann, bob, tool("all"), tool("secret", description="Another one."))
        assert await ann.names() == await bob.names()
        assert (await ann.names())["secret"] == bob.lists.listed_to("bob")["s"]["secret"]
        assert two.snapshot.by_id[id_].key.tool == "secret"


async def test_what_nobody_is_listed_any_more_goes(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """With the next list of whoever was the last; without a store by what was heard here."""
    async with open_catalog() as one, open_catalog() as two:
        ann, bob = Here(one, "ann"), Here(two, "bob")
        await bob.list(tool("all"), tool("secret"))
        await ann.list(tool("all"))
        await bob.list(tool("all"))
        assert (await ann.names()).keys() == (await bob.names()).keys() == {"all"}
        await ann.lists.refresh()
        keep = ann.lists.keep_others("s", {"ann"})
        assert keep(None, {"all", "secret"}) == {"all"}


async def test_a_list_that_could_not_be_stored_is_stored_with_the_next_one(
    store: StorePlace, open_catalog: OpenCatalog, tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it is the same one: others go by what is stored."""

    async def fail(*args: Any, **options: Any) -> None:
        raise CatalogError("The disk is full.")

    async with open_catalog() as one, open_catalog() as two:
        ann, bob = Here(one, "ann"), Here(two, "bob")
        with monkeypatch.context() as patched:
            patched.setattr(two, "write", fail)
            with pytest.raises(CatalogError):
                await bob.fetch(tool("secret"))
        await bob.list(tool("secret"))
        await ann.list()
        assert (await ann.names()).keys() == {"secret"}
