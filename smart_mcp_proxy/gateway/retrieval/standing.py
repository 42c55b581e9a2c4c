"""Reasons why a tool is not in the answer to a query, from the configuration on."""

from collections.abc import Callable, Mapping, Set
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from smart_mcp_proxy.catalog import Snapshot
from smart_mcp_proxy.errors import ProxyError, ToolNotFoundError
from smart_mcp_proxy.gateway.shared.refusals import server_quarantined, tool_withheld
from smart_mcp_proxy.gateway.visibility.visibility import NAME_LIMIT_CHARS, CatalogView
from smart_mcp_proxy.models import Hit, ServerState, ServerStatus, ToolRecord, WithheldState
from smart_mcp_proxy.names import build_listed_prefix, parse_canonical, shell_word
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.search.engine import LOWER_FLOOR, UPPER_FLOOR
from smart_mcp_proxy.search.standing import find_standing

if TYPE_CHECKING:
    from smart_mcp_proxy.gateway.retrieval.retrieval import Question

_NEAR = 3
_LIKENESS = 0.7
"""Share of letters in common from which the name of a tool that is not searched may have been meant."""
_STATES = {WithheldState.PENDING: "new"}
"""Verdicts for tools that wait for the user, where they are not called as the state is."""
_HIDDEN = {
    "not_configured": "Server '{0}' is not configured; the tool is from an earlier session.",
    "server_disabled": "Server '{0}' is disabled. Enable it with: mcpproxy server enable {1}",
    "server_not_ready": "The entry of server '{0}' cannot be used. See why: mcpproxy server show {1}",
    "excluded": "The \"tools\" of server '{0}' in the server file leave it out.",
    "profile": "It is not in this profile.",
}


class _Obstacle(NamedTuple):
    """A verdict from before the search, and a sentence about it."""

    verdict: str
    reason: str


class Inquiry(msgspec.Struct, frozen=True):
    """An operator's questions about tools, withheld ones included.

    Attributes:
        view: What the agent in question sees.
        snapshot: All tools.
        index: Searches those that are visible anywhere.
        statuses: Of all servers, by name.
        ranked: The ids that a question ranks, and those of them that wait and leave their places empty.
        room: The first tools of an answer that are sent, and whether others had no room.
    """

    view: CatalogView
    snapshot: Snapshot
    index: SearchIndex
    statuses: Mapping[str, ServerStatus]
    ranked: "Callable[[Question], tuple[Set[int] | None, Set[int]]]"
    room: "Callable[[Question, list[tuple[Hit, ToolRecord]]], tuple[list[Any], bool]]"

    def about(self, question: "Question", name: str) -> dict[str, Any]:
        """Find where the tool of that canonical or listed name stands for the question's one query.

        Raises:
            ToolNotFoundError: No tool has that name, and no server that may have one is still to list it.
        """
        record = self._tool(name)
        if record is None:
            return self._build_base_answer(question, name, *self._find_unlisted_server(name))
        allowed, waiting = self.ranked(question)
        obstacle = self._obstacle(record, question, allowed)
        told = self._build_base_answer(question, str(record.key), record.key.server, obstacle)
        if record.id not in self.index.documents:
            return told
        if obstacle is not None:  # the numbers are then those without it
            question, allowed = msgspec.structs.replace(question, servers=(), read_only=False, types=()), None
        searched = self._judge_by_search(question, record, allowed, waiting - {record.id})
        if obstacle is not None:
            reason = f"{obstacle.reason} Without that: {searched['reason']}"
            searched |= {"verdict": obstacle.verdict, "reason": reason, "place": None}
        return told | searched

    def _judge_by_search(
        self, question: "Question", record: ToolRecord, allowed: Set[int] | None, waiting: Set[int]
    ) -> dict[str, Any]:
        """Verdict and numbers of the search."""
        answer = self.index.search(
            question.query,
            limit=question.limit,
            allowed=allowed,
            servers=question.servers,
            explain=True,
            watched=record.id,
            waiting=waiting,
        )
        if question.servers:
            documents = self.index.documents.values()
            inside = {each.id for each in documents if each.server in question.servers}
            allowed = inside if allowed is None else inside & allowed
        found = find_standing(self.index, record.id, question.query, answer, question.limit, allowed)
        shown = [(hit, known) for hit in answer.hits if (known := self.snapshot.by_id.get(hit.id)) is not None]
        sent = len(self.room(question, shown)[0])
        if found.place is not None and found.place > sent:
            reason = f"It has place {found.place}, and the answer has no room for more than its first {sent} tools."
            found = msgspec.structs.replace(found, verdict="size", reason=reason, place=None)
        top = {"name": found.top, "score": round(found.top_score, 3)} if found.top is not None else None
        return {
            "verdict": found.verdict,
            "reason": found.reason,
            "place": found.place,
            "rank": found.rank,
            "score": round(found.score, 3),
            "top": top,
            "cut": round(found.cut, 3),
            "fitness": round(found.fitness, 3),
            "why": dict(found.why),
        }

    def _build_base_answer(
        self, question: "Question", name: str, server: str, obstacle: _Obstacle | None
    ) -> dict[str, Any]:
        """The answer as far as it is known before a search."""
        verdict, reason = obstacle or ("not_indexed", "The index does not hold it yet: ask again in a second.")
        numbers = dict.fromkeys(("place", "rank", "score", "top", "cut", "fitness"))
        status = self.statuses.get(server)
        return {
            "query": question.query,
            "name": name,
            "verdict": verdict,
            "reason": reason,
            **numbers,
            "floors": {"lower": LOWER_FLOOR, "upper": UPPER_FLOOR},
            "limit": question.limit,
            "server": {"name": server, "state": status.state.value if status is not None else None},
            "why": {},
        }

    def _tool(self, name: str) -> ToolRecord | None:
        snapshot, key = self.snapshot, parse_canonical(name)
        waiting = (each.record for each in snapshot.withheld.values())
        found = (snapshot.by_key.get(key) if key else None) or snapshot.by_listed.get(name)
        return found or next((each for each in waiting if each.key == key or each.listed_name == name), None)

    def _obstacle(self, record: ToolRecord, question: "Question", allowed: Set[int] | None) -> _Obstacle | None:
        """The first thing that keeps a known tool from being searched for this question."""
        server, hidden = record.key.server, self.view.rules.find_hiding_rule(record)
        if hidden == "server_quarantined":
            return _Obstacle(hidden, _for_people(server_quarantined(server)))
        if hidden:
            return _Obstacle(hidden, _HIDDEN[hidden].format(server, shell_word(server)))
        if (withheld := self.snapshot.withheld.get(record.key)) is not None:
            state = _STATES.get(withheld.state, withheld.state.value)
            return _Obstacle(state, _for_people(tool_withheld(record.key, withheld.state)))
        if question.servers and server not in question.servers:
            return _Obstacle("servers", f"Only tools of {', '.join(question.servers)} were asked for.")
        if question.read_only and record.annotations.get("readOnlyHint") is not True:
            return _Obstacle("read_only", "Only tools marked readOnlyHint: true were asked for.")
        if allowed is not None and record.id not in allowed:
            return _Obstacle("filter", "The question is not about such tools.")
        return None

    def _find_unlisted_server(self, name: str) -> tuple[str, _Obstacle]:
        """The server that would have a tool of that name, and why it has listed none."""
        key = parse_canonical(name)
        server = (
            key.server
            if key
            else next((each for each in self.statuses if name.startswith(build_listed_prefix(each))), "")
        )
        status = self.statuses.get(server)
        if status is None or status.state is ServerState.READY or self.snapshot.collect_server_tools(server):
            raise self._unknown(name)
        config = self.view.servers.get(server)
        if status.state is ServerState.QUARANTINED or (config and config.quarantined):
            return server, _Obstacle("server_quarantined", _for_people(server_quarantined(server)))
        if status.state is ServerState.DISABLED or (config and config.disabled):
            return server, _Obstacle("server_disabled", _HIDDEN["server_disabled"].format(server, shell_word(server)))
        state = f"Server '{server}' is not ready ({status.state.value}) and has listed no tools."
        return server, _Obstacle("server_not_ready", " ".join(filter(None, (state, status.cause, status.hint))))

    def _unknown(self, name: str) -> ToolNotFoundError:
        shown, documents = name[:NAME_LIMIT_CHARS], self.index.documents
        waiting = get_close_matches(shown, map(str, self.snapshot.withheld), n=_NEAR, cutoff=_LIKENESS)
        ids = self.index.nearest_names(shown, _NEAR)
        near = [*waiting, *(f"{documents[id].server}:{documents[id].name}" for id in ids if id in documents)][:_NEAR]
        hint = f"Did you mean {' or '.join(near)}?" if near else "mcpproxy tool list has all names."
        data = {"did_you_mean": near} if near else None
        return ToolNotFoundError(f"No server lists a tool {shown!r}.", hint=hint, data=data)


def _for_people(error: ProxyError) -> str:
    return f"{error.message} {error.hint}"
