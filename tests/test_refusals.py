"""Every refusal there is: what it says, who can lift it, and what it leaves unsaid."""

import ast
import re
from collections.abc import Collection
from functools import cache
from typing import NamedTuple

import pytest
from syntax_trees import list_nodes, package_trees

from smart_mcp_proxy.upstream.protocol.session import rpc_error

KINDS = {
    *("QuarantinedError", "RateLimitedError", "RefusedError", "ShuttingDownError", "UnauthorizedError"),
    *("ConflictError", "ProxyDisabledError", "TooLargeError", "UnsupportedTypeError"),
}
CODES = {"breaker_open", "input_not_allowed"}
"""Refusals by their code: the class of the error says that somebody else is at fault, too."""
REQUESTS = {
    *("RequestError", "ServerNotFoundError", "ToolNotFoundError", "TokenNotFoundError", "UnknownRecordError"),
    *("NotServedError", "BadMethodError", "ProfileNotFoundError"),
}
"""Requests that cannot be carried out: their caller lifts that, by making another one."""

LIFTED_BY = {
    "user": re.compile(r"\b(?:[Tt]he|[Ii]ts) user\b|_ONLY_THE_USER"),
    "operator": re.compile(r"\boperator\b|MCPPROXY_[A-Z]|runs the gateway|data directory"),
    "caller": re.compile(
        r"\b(?:Make|Begin|Reload)\b|"
        r"\b(?:Use|Read|Look|Send|Split|Run|Unsubscribe|Leave|Add|Call|Try|Wait|Ask by url|Ask again|Change|Enable)\b|"
        r"decision\.hint|error\.hint|^hint$"
    ),
    "nobody": re.compile(r"Nothing lifts this"),
}
"""Who can lift a refusal, and the words of a hint that say so."""

REFUSALS = {
    "cli/commands/catalog/approve.py:_decide": "caller",
    "cli/commands/servers/connect.py:_connect_client": "caller",
    "cli/commands/servers/server_registry.py:_require_standing": "caller",
    "client_files/files.py:_build_conflict": "caller",
    "fastmcp_compat/http/sessions.py:no_room": "caller",
    "gateway/sessions/agent.py:_build_shutdown_error": "caller",
    "gateway/admin/agent_tokens.py:create": "caller",
    "gateway/admin/approvals.py:approve": "caller",
    "gateway/admin/approvals.py:reseal": "caller",
    "gateway/broker/brokering.py:_require": "user",
    "gateway/calls/gates.py:check_variant": "caller",
    "gateway/calls/gates.py:build_definition_changed_error": "caller",
    "gateway/calls/client_sessions.py:_build_question_error": "caller",
    "gateway/calls/admission.py:_full": "caller",
    "gateway/calls/admission.py:_build_hold_error": "caller",
    "gateway/calls/admission.py:build_breaker_error": "caller",
    "gateway/calls/admission.py:build_caller_rate_error": "operator",
    "gateway/calls/admission.py:build_crowd_error": "operator",
    "gateway/calls/admission.py:build_quota_error": "operator",
    "gateway/calls/admission.py:build_server_rate_error": "user",
    "gateway/calls/admission.py:turn": "caller",
    "gateway/calls/inputs.py:_not_allowed": "user",
    "gateway/calls/inputs.py:_build_input_error": "nobody",
    "gateway/admin/management.py:_require_operable": "caller",
    "gateway/shared/refusals.py:content_changed": "caller",
    "gateway/shared/refusals.py:content_unlisted": "user",
    "gateway/shared/refusals.py:content_withheld": "user",
    "gateway/shared/refusals.py:server_disabled": "user",
    "gateway/shared/refusals.py:server_quarantined": "user",
    "gateway/shared/refusals.py:differs_here": "user",
    "gateway/shared/refusals.py:tool_withheld": "user",
    "gateway/sandbox/run.py:_too_many_calls": "operator",
    "gateway/sandbox/sandbox.py:_take_slot": "operator",
    "gateway/sessions/subscriptions.py:_too_many": "caller",
    "gateway/tools/code_execution.py:_request": "caller",
    "gateway/admin/doors.py:_build_confined_error": "caller",
    "gateway/admin/doors.py:_build_gone_error": "caller",
    "gateway/admin/doors.py:_build_server_error": "caller",
    "gateway/admin/page_sessions.py:enter": "caller",
    "gateway/admin/roles.py:require_role": "operator",
    "gateway/admin/server_sign_ins.py:take": "caller",
    "gateway/calls/requests.py:_build_hidden_error": "user",
    "gateway/calls/requests.py:_require_frontmatter": "caller",
    "gateway/sessions/app_calls.py:_of_page": "caller",
    "gateway/sessions/app_calls.py:_permit_app_tool": "nobody",
    "gateway/shared/refusals.py:skill_file_unlisted": "user",
    "gateway/visibility/visibility.py:_refuse_access": "operator",
    "proxying/perform.py:_perform_batch": "caller",
    "servers/edit_file.py:change_entries": "caller",
    "servers/edit_servers.py:_check_name": "caller",
    "servers/edit_servers.py:_guard_entry_change": "user",
    "servers/edit_servers.py:_refuse_own_keys": "caller",
    "servers/edit_servers.py:_require": "operator",
    "servers/edit_servers.py:approve_server": "user",
    "upstream/per_client.py:_new_place": "user",
    "upstream/personal.py:_make_room": "user",
    "web/broker/app.py:_require_principal": "caller",
    "web/broker/app.py:_place": "operator",
    "web/common/messages.py:read_body": "caller",
    "web/common/messages.py:require_json": "caller",
    "web/common/refusals.py:build_refusal_error": "operator",
    "web/page/app.py:answer_visit": "caller",
    "web/page/connecting.py:_build_unknown_error": "caller",
    "web/page/connecting.py:go_on": "caller",
    "web/page/provider_sign_in.py:_ask_of_token": "caller",
    "web/page/provider_sign_in.py:finish": "operator",
    "web/page/provider_sign_in.py:identify": "operator",
    "web/page/places/waiting.py:_approve_together": "caller",
    "web/page/visit.py:form": "caller",
    "web/rest/authorization.py:admit": "operator",
    "web/auth/sign_in_pages.py:take": "caller",
}
"""Where each is made, and who can lift it."""

WITHHELD = re.compile(
    r"description|title|schema|definition|annotations|arguments\b(?!\.servers)|\btext\b|params|body|value"
)
"""What a message must not be made of."""
SAID_BACK = {"text[:40]", "type(arguments).__name__"}
"""The beginning of a number or a choice in an address, and the kind of a value."""


class Refusal(NamedTuple):
    """One place that refuses.

    Attributes:
        message: Its text, with the expressions in it.
        hint: Likewise.
        keywords: What it is given besides.
        inserted: The expressions in both.
    """

    message: str
    hint: str
    keywords: frozenset[str]
    inserted: tuple[str, ...]


def written(node: ast.expr | None) -> tuple[str, list[str]]:
    """The text of an expression, and the expressions that are put into it."""
    match node:
        case None:
            return "", []
        case ast.Constant(value=str(text)):
            return text, []
        case ast.JoinedStr(values=parts):
            both = [written(part) for part in parts]
            return "".join(text for text, _ in both), [each for _, inner in both for each in inner]
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
            (first, one), (second, other) = written(left), written(right)
            return first + second, one + other
        case ast.FormattedValue(value=value):
            return ast.unparse(value), [ast.unparse(value)]
        case _:
            return ast.unparse(node), [ast.unparse(node)]


@cache
def calls() -> list[tuple[str, ast.Call]]:
    """Every call of a name with arguments inside a function, by path and function; looked for once."""
    functions = [
        (path, function)
        for path, tree in package_trees().items()
        for function in list_nodes(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [
        (f"{path}:{function.name}", node)
        for path, function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and name_of(node.func) and node.args
    ]


def name_of(node: ast.expr) -> str:
    """The last part of a name that may stand behind a module's; empty for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def is_made(node: ast.Call, kinds: Collection[str]) -> bool:
    """Whether an error of one of these classes is made here, or one whose code is a refusal's."""
    name = name_of(node.func)
    codes = [word.value.value for word in node.keywords if word.arg == "code" and isinstance(word.value, ast.Constant)]
    is_code = name.endswith("Error") and not CODES.isdisjoint(codes) and kinds is KINDS
    return name in kinds or is_code


def refusals(kinds: Collection[str] = KINDS) -> dict[str, list[Refusal]]:
    """Every refusal that the package makes, by where."""
    found: dict[str, list[Refusal]] = {}
    for place, node in calls():
        if is_made(node, kinds):
            given = {word.arg: word.value for word in node.keywords if word.arg}
            message, said = written(node.args[0])
            hint, hinted = written(given.get("hint"))
            refusal = Refusal(message, hint, frozenset(given), (*said, *hinted))
            found.setdefault(place, []).append(refusal)
    return found


def with_subclasses(base: str) -> set[str]:
    """The name of a class and of all that the package derives from it."""
    classes = [node for tree in package_trees().values() for node in list_nodes(tree) if isinstance(node, ast.ClassDef)]
    found: set[str] = set()
    more = {base}
    while more - found:
        found |= more
        more = {each.name for each in classes for its in each.bases if name_of(its) in found}
    return found


def test_the_table_has_every_refusal_there_is() -> None:
    """Who adds one says who can lift it."""
    assert refusals().keys() == REFUSALS.keys()


def test_a_refusal_says_what_and_who_can_lift_it() -> None:
    """A sentence, and a hint in whose words somebody is named or something is to be done."""
    for place, found in refusals().items():
        hints = " ".join(refusal.hint for refusal in found)
        assert LIFTED_BY[REFUSALS[place]].search(hints), (place, hints)
        for refusal in found:
            assert refusal.message and refusal.hint, (place, refusal)
            assert any(words.search(refusal.hint) for words in LIFTED_BY.values()), (place, refusal.hint)


def test_a_request_that_cannot_be_carried_out_is_told_what_to_do() -> None:
    """What is wrong, and a hint; neither holds what was to be carried out."""
    for place, found in refusals(REQUESTS).items():
        for request in found:
            assert request.message and request.hint, (place, request)
            shown = [each for each in request.inserted if WITHHELD.search(each) and each not in SAID_BACK]
            assert not shown, (place, request)


def test_a_failed_server_is_told_with_what_to_do_next() -> None:
    """Wherever its error is made: why nothing came of it, and a hint, whichever way the code comes to it."""
    found = refusals(with_subclasses("UpstreamError"))
    assert len(found) > 30
    for place, failures in found.items():
        for failure in failures:
            assert failure.message and failure.hint.strip(), (place, failure)


def test_every_kind_of_failed_server_is_looked_for() -> None:
    """Those that are made under another name, too."""
    assert {"UpstreamTimeoutError", "UpstreamAuthError", "EndedSignInError"} <= with_subclasses("UpstreamError")


@pytest.mark.parametrize("code", [-32021, -32600, -32601, -32602, -32603, -32055])
def test_an_error_of_the_servers_own_is_told_with_what_to_do_next(code: int) -> None:
    """Whatever its number."""
    assert rpc_error("notes", "tools/call", code, "no").hint


def test_a_refusal_is_not_made_of_what_it_refuses() -> None:
    """Names and numbers go into it; nothing of a definition, of arguments or of a body does."""
    for place, found in refusals().items():
        for refusal in found:
            assert not [each for each in refusal.inserted if WITHHELD.search(each)], (place, refusal)


def test_what_is_refused_for_a_while_says_for_how_long() -> None:
    """All that are about too much at once carry `retry_after_s`."""
    found = refusals()
    for place in REFUSALS:
        if place.startswith("gateway/calls/admission.py"):
            assert all("retry_after_s" in refusal.keywords for refusal in found[place]), place
