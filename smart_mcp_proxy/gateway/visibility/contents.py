"""Prompts, resources and templates as agents see them at one path: names, pages, targets."""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from smart_mcp_proxy.catalog import Catalog, Snapshot
from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.shared.app_pages import UNLISTED_KEY, remove_gateway_meta
from smart_mcp_proxy.gateway.shared.refusals import content_changed, content_unlisted, content_withheld
from smart_mcp_proxy.gateway.visibility import uri_templates
from smart_mcp_proxy.gateway.visibility.items import Item, Target, by_shown, cursor_after, decode_cursor, only_one
from smart_mcp_proxy.gateway.visibility.skill_lookup import decode_skill_entry, find_holding_skill, relink_skill_entry
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ContentKind, ToolKey, ToolRecord, WithheldState
from smart_mcp_proxy.names import IDENTITIES, build_listed_name, build_listed_prefix, extract_server_name, shelf

PAGE_ITEMS = 1_000
"""Items of one page: clients were seen that read the first page alone (Gemini CLI 0.61.0, Factory Droid 0.215.0)."""
NAME_CHARS = 200
"""Characters shown or compared of a name that does not exist."""
NEAR_MISSES = 3
COMPARED = 500
"""Names that a wrong one is compared with; each comparison takes tens of microseconds."""


class _State(NamedTuple):
    snapshot: Snapshot
    rules: object
    items: dict[ContentKind, Mapping[str, Item]]
    """Filled as it is asked for."""


class Contents:
    """The servers' prompts and resources as seen at one place.

    Args:
        catalog: Holds them, approved and withheld.
        visible: What may be seen here.
        name_limit: Longest name of a prompt, in characters.
        passed: The one server whose names and URIs are shown as they are; None where names say the server.
    """

    def __init__(self, catalog: Catalog, visible: CatalogView, name_limit: int, passed: str | None) -> None:
        self._catalog = catalog
        self._visible = visible
        self._name_limit = name_limit
        self._passed = passed
        self._state = _State(Snapshot(), None, {})
        self._known: dict[ContentKind, Mapping[str, Item]] = {}
        """As of the last look: most changes leave most definitions as they were, and reading them takes its time."""

    @property
    def servers(self) -> list[str]:
        """The servers that can be asked here, by name."""
        return [name for name, config in self._visible.servers.items() if not config.is_off]

    def of(self, kind: ContentKind) -> Mapping[str, Item]:
        """All items of one kind by shown name or URI; by server, then in first-listed order."""
        state, snapshot, rules = self._state, self._catalog.snapshot, self._visible.rules
        if state.snapshot is not snapshot or state.rules is not rules:
            state = self._state = _State(snapshot, rules, {})
        if kind not in state.items:
            state.items[kind] = self._known[kind] = by_shown(self.every(kind))
        return state.items[kind]

    def every(self, kind: ContentKind) -> Iterator[Item]:
        """All items of one kind, those too whose web URI another server has listed before."""
        known = {item.record.id: item for item in self._known.get(kind, {}).values()}
        return self._iterate_items(self._catalog.snapshot, kind, known)

    def page(self, kind: ContentKind, cursor: str | None) -> tuple[list[Mapping[str, Any]], str | None]:
        """Return a page of definitions and the cursor of the next page; None after the last.

        Raises:
            RequestError: The cursor is none of the gateway's.
        """
        items = [item for item in self.of(kind).values() if UNLISTED_KEY.encode() not in item.record.raw]
        after = decode_cursor(cursor) if cursor else None
        left = [item for item in items if after is None or item.place > after]
        page = left[:PAGE_ITEMS]
        return [item.definition for item in page], cursor_after(page[-1].place) if len(left) > PAGE_ITEMS else None

    def state(self, *kinds: ContentKind) -> tuple[tuple[str, str], ...]:
        """Equal as long as the lists of these kinds are the same ones."""
        return tuple((name, item.record.change_hash) for kind in kinds for name, item in self.of(kind).items())

    def build_resource_uri(self, server: str, uri: str) -> str:
        """The URI under which agents here reach a server's resource."""
        return uri if self._passed is not None else uri_templates.gateway_uri(server, uri)

    def select_uri_builder(self, target: Target) -> Callable[[str, str], str]:
        """Name the URIs in what a target's server gives, as agents here know them."""
        is_skill = target.record is not None and target.record.key.server == shelf(target.server, "skills")
        return self.skill_uri if is_skill else self.build_resource_uri

    def prompt(self, name: str) -> Target:
        """The prompt of that name.

        Raises:
            RequestError: There is none.
            QuarantinedError: It waits for the user.
        """
        prompts = self.of("prompts")
        said = (item for item in prompts.values() if f"{item.server}:{item.name}" == name)
        if (item := prompts.get(name) or next(said, None)) is not None:
            return Target(item.server, item.name, item.record)
        for key, each in self._catalog.snapshot.withheld.items():
            server = extract_server_name(key.server)
            names = self._prompt_name(server, key.tool), f"{server}:{key.tool}"
            is_named = key.server == shelf(server, "prompts") and name in names
            if is_named and self._visible.rules.offers_record(server, each.record):
                raise content_withheld(key, each.state)
        if not self.possible_owners(name, is_prompt=True):  # it says no server
            named = [(item, item.shown) for item in prompts.values() if item.name == name]
            if (item := only_one("prompt", name, named)) is not None:
                return Target(item.server, item.name, item.record)
        close = get_close_matches(name[:NAME_CHARS], [*islice(prompts, COMPARED)], n=NEAR_MISSES)
        hint = f"Did you mean {' or '.join(close)}?" if close else "prompts/list has all names."
        raise RequestError(f"No prompt is named {name[:NAME_CHARS]!r}.", hint=hint, code="not_found")

    def resource(self, uri: str) -> Target:
        """Resolve a URI: a listed resource, one of a template, or one only named by its server.

        Raises:
            RequestError: It leads nowhere.
            QuarantinedError: It waits for the user.
        """
        server, own = self.own_uri(uri)
        if server is not None and (skill := self.skill_with(server, own)) is not None:
            return Target(server, own, skill)
        if (item := self.of("resources").get(uri)) is not None:
            return Target(item.server, item.name, item.record)
        target = self._resolve_template(uri)
        if target is None:
            server, own = self._resolve_unlisted(uri)
            record = self._catalog.snapshot.by_key.get(ToolKey(shelf(server, "resources"), own))
            is_seen = record is not None and self._visible.rules.offers_record(server, record)
            target = Target(server, own, record if is_seen else None)
        if target.record is None or target.record.key.server == shelf(target.server, "templates"):
            _refuse_withheld(self._catalog.snapshot, target, self._visible.rules.offers_record)
        return target

    def list_server_skills(self, server: str) -> list[ToolRecord]:
        """A server's approved skills."""
        return [item.record for item in self.of("skills").values() if item.server == server]

    def skill_with(self, server: str, uri: str) -> ToolRecord | None:
        """The approved skill that holds a server's file; None where it has nothing to do with skills.

        Raises:
            QuarantinedError: The skill waits for the user, or was approved without the file.
        """
        snapshot, records, place = self._catalog.snapshot, self.list_server_skills(server), shelf(server, "skills")
        has_skills = bool(records) or any(key.server == place for key in snapshot.withheld)
        if not has_skills or not self._visible.sees_content(server, uri):
            return None
        return find_holding_skill(snapshot, server, uri, records)

    def skill(self, uri: str) -> Target:
        """The skill whose main file has this URI.

        Raises:
            RequestError: There is none.
            QuarantinedError: It waits for the user.
        """
        if (item := self.of("skills").get(uri)) is not None:
            return Target(item.server, item.name, item.record)
        server, own = self.own_uri(uri)
        key = ToolKey(shelf(server or "", "skills"), own)
        waiting = self._catalog.snapshot.withheld.get(key)
        if waiting is not None and self._visible.rules.offers_record(server or "", waiting.record):
            raise content_withheld(key, waiting.state)
        raise RequestError(
            f"No skill is {uri[:NAME_CHARS]!r}.", hint="skills/list has all that are approved.", code="not_found"
        )

    def resolve_link(self, server: str, uri: str) -> Target:
        """Resolve a resource that a server's result linked to; it may be new to its lists.

        Args:
            server: The one that linked to it.
            uri: As it did.

        Raises:
            RequestError: The server is not seen here.
            QuarantinedError: It waits for the user for another reason than that it is new.
        """
        if not self._visible.sees_content(server, uri):
            raise self._unknown(uri)
        templates = (item for item in self.of("templates").values() if item.server == server)
        record = next((item.record for item in templates if uri_templates.match(item.name, uri) is not None), None)
        target = Target(server, uri, record, is_linked=True)
        _refuse_withheld(self._catalog.snapshot, target, self._visible.rules.offers_record)
        return target

    def own_uri(self, uri: str) -> tuple[str | None, str]:
        """Server and URI that an agent's URI says, to the letter; None for the server where it says none."""
        if self._passed is not None:
            return self._passed, uri
        return uri_templates.split_gateway_uri(uri) or (None, uri)

    def possible_owners(self, wanted: str, *, is_prompt: bool) -> list[str]:
        """Servers that an agent's name or URI may belong to, whatever they have listed so far."""
        if self._passed is not None:
            return self.servers
        if is_prompt:
            return [name for name in self.servers if wanted.startswith((build_listed_prefix(name), f"{name}:"))]
        said, _ = self.own_uri(wanted)
        return [name for name in self.servers if said in (name, None)]

    def template(self, uri: str) -> Target:
        """Resolve a template, or the template of a resource's URI.

        Raises:
            RequestError: Nowhere.
        """
        item = self.of("templates").get(uri) or self.of("resources").get(uri)
        if item is None:
            raise RequestError(
                f"No resource template is {uri[:NAME_CHARS]!r}.",
                hint="resources/templates/list has all.",
                code="not_found",
            )
        return Target(item.server, item.name, item.record)

    def _resolve_unlisted(self, uri: str) -> tuple[str, str]:
        """Server and own URI of something that is not listed under this URI."""
        if self._passed is not None and self._visible.sees_content(self._passed, uri):
            return self._passed, uri
        parts = uri_templates.split_gateway_uri(uri)
        if parts is not None and self._visible.sees_content(*parts):
            return parts
        # Text may name a resource by the URI that its own server gives it.
        owned = [item for item in self.of("resources").values() if item.name == uri]
        if (item := only_one("resource", uri, [(item, item.shown) for item in owned])) is not None:
            return item.server, item.name
        if uri_templates.is_web(uri) and (waiting := self._find_withholding_server(uri)) is not None:
            return waiting, uri
        raise self._unknown(uri)

    def _find_withholding_server(self, uri: str) -> str | None:
        """A server that lists a resource of this URI which waits for the user."""
        withheld = self._catalog.snapshot.withheld
        places = ((server, ToolKey(shelf(server, "resources"), uri)) for server in self.servers)
        known = ((server, withheld[key].record) for server, key in places if key in withheld)
        return next((server for server, record in known if self._visible.rules.offers_record(server, record)), None)

    def _resolve_template(self, uri: str) -> Target | None:
        """Resolve a URI through a template.

        A URI of ours holds the server's own one encoded, a filled template holds the values as an agent has put them
        in. Where it can be read either way, it is the server's own URI if a client may get that from the template.
        """
        server, own = self.own_uri(uri)
        templates = self.of("templates")
        if server is not None and own != uri and uri_templates.gateway_uri(server, own) == uri:
            for item in templates.values():
                if item.server == server and uri_templates.fits(item.name, own):
                    return Target(server, own, item.record)
        for shown, item in templates.items():
            if (values := uri_templates.match(shown, uri)) is not None:
                return Target(item.server, uri_templates.expand_template(item.name, values), item.record)
        if server is not None or any(item.name == uri for item in self.of("resources").values()):
            return None
        fitting = {item.server: item for item in templates.values() if uri_templates.fits(item.name, uri)}
        only = only_one(
            "resource", uri, [(item, self.build_resource_uri(item.server, uri)) for item in fitting.values()]
        )
        return None if only is None else Target(only.server, uri, only.record)

    def _unknown(self, uri: str) -> RequestError:
        hint = "Use the URI that resources/list gives." if self._passed is None else "resources/list has all."
        return RequestError(f"No resource is {uri[:NAME_CHARS]!r}.", hint=hint, code="not_found")

    def _iterate_items(self, snapshot: Snapshot, kind: ContentKind, known: Mapping[int, Item]) -> Iterator[Item]:
        for server in sorted(self.servers):
            for record in snapshot.by_server.get(shelf(server, kind), ()):
                if self._visible.rules.offers_record(server, record):
                    item = known.get(record.id)
                    yield item if item is not None and item.record is record else self._item(kind, server, record)

    def _item(self, kind: ContentKind, server: str, record: ToolRecord) -> Item:
        name = record.key.tool
        shown = _NAMES[kind](self, server, name)
        if kind == "skills" and self._passed is None:
            return Item(server, name, record, shown, relink_skill_entry(server, decode_skill_entry(record.raw)))
        definition = remove_gateway_meta(msgspec.json.decode(record.raw))
        return Item(server, name, record, shown, {**definition, IDENTITIES[kind]: shown})

    def _prompt_name(self, server: str, name: str) -> str:
        return name if self._passed is not None else build_listed_name(ToolKey(server, name), self._name_limit)

    def skill_uri(self, server: str, uri: str) -> str:
        """The URI under which agents here reach a skill's file or directory."""
        return uri if self._passed is not None else uri_templates.gateway_skill_uri(server, uri)

    def _template_name(self, server: str, template: str) -> str:
        return template if self._passed is not None else uri_templates.gateway_template(server, template)


def require_unchanged(snapshot: Snapshot, target: Target) -> None:
    """Passes if what was found in an earlier snapshot may still be asked for.

    Raises:
        QuarantinedError: It waits for the user by now.
        RefusedError: It has another definition.
        RequestError: It is gone.
    """
    record = target.record
    if record is not None:
        if record.key in snapshot.withheld:
            raise content_withheld(record.key, snapshot.withheld[record.key].state)
        now = snapshot.by_key.get(record.key)
        if now is None or now.change_hash != record.change_hash:
            raise content_changed(record.key, is_gone=now is None)
    if target.name and (record is None or record.key.server == shelf(target.server, "templates")):
        _refuse_withheld(snapshot, target)


def _refuse_withheld(
    snapshot: Snapshot, target: Target, is_known_to_caller: Callable[[str, ToolRecord], bool] = lambda *_: True
) -> None:
    """Passes unless a URI that is not itself listed leads to what is withheld, however it is spelled.

    Which spellings a server takes for one, nobody else knows: while anything is withheld, only what it lists, or what
    an approved template covers, may be read. What a result linked to is withheld only by what changed or is blocked.
    Who was not listed what is withheld does not learn that it is there.
    """
    resources, templates = shelf(target.server, "resources"), shelf(target.server, "templates")
    withheld = {key: each for key, each in snapshot.withheld.items() if key.server in (resources, templates)}
    is_known = target.record is not None
    if target.is_linked:
        is_known = is_known or ToolKey(resources, target.name) in withheld
        withheld = {key: each for key, each in withheld.items() if each.state is not WithheldState.PENDING}
    asked = uri_templates.canonical(target.name) if withheld else ""
    for key, each in withheld.items():
        if (
            uri_templates.canonical(key.tool) == asked
            if key.server == resources
            else uri_templates.covers(key.tool, target.name)
        ):
            is_told = is_known_to_caller(target.server, each.record)
            raise content_withheld(key, each.state) if is_told else content_unlisted(target.server)
    if withheld and not is_known:
        raise content_unlisted(target.server)


_NAMES: Mapping[ContentKind, Callable[[Contents, str, str], str]] = {
    "prompts": Contents._prompt_name,
    "resources": Contents.build_resource_uri,
    "templates": Contents._template_name,
    "skills": Contents.skill_uri,
}
