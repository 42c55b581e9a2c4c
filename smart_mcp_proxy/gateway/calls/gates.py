"""The gates: checks that every request passes, in their order, before anything is sent.

A gate passes by returning and refuses by raising. It does not wait and has no clock; what waits for its turn is
admission (`admission.py`), which follows the gates.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import jsonschema_rs
import msgspec

from smart_mcp_proxy import policy
from smart_mcp_proxy.errors import RefusedError, RequestError
from smart_mcp_proxy.gateway.calls.exchange import RequestExchange
from smart_mcp_proxy.gateway.shared.app_pages import is_for_apps_alone
from smart_mcp_proxy.models import Intent, ToolRecord
from smart_mcp_proxy.policy import ArgumentsKept
from smart_mcp_proxy.policy.lenient_schema import lenient_schema
from smart_mcp_proxy.settings import Settings

KEPT_VALIDATORS = 512
MESSAGE_LIMIT_CHARS = 300
_NOTHING_STATED: Final = Intent()
_PATTERN_LIMITS: Final = {"backtrack_limit": 10_000, "size_limit": 1 << 20, "dfa_size_limit": 1 << 20}
"""A server writes the pattern and an agent the text: neither may make a match take long."""


class CallLimits(msgspec.Struct, frozen=True):
    """Settings of calls.

    Attributes:
        is_strict: Whether call_tool_read needs `readOnlyHint: true`.
        output_limit_chars: Longer text is cut; 0 leaves everything as it came.
        arguments: What the activity log keeps of a call's arguments.
        is_cleaned: Whether what steers a terminal or hides from the eye is taken out of results.
        is_fenced: Whether text of others is marked as such.
    """

    is_strict: bool = True
    output_limit_chars: int = 0
    arguments: ArgumentsKept = "shape"
    is_cleaned: bool = False
    is_fenced: bool = False

    @property
    def may_drop_structured(self) -> bool:
        """Whether a tool's result may come without its structured content."""
        return self.is_fenced or self.output_limit_chars > 0

    @classmethod
    def of(cls, settings: Settings, *, is_passing_through: bool) -> "CallLimits":
        """Build the limits from the settings.

        What is passed through is neither changed nor cut: nothing would be listed to read the rest with.
        """
        return cls(
            settings.intent_strict,
            0 if is_passing_through else settings.truncate_output_len or 0,
            settings.activity_args,
            is_cleaned=settings.clean_results and not is_passing_through,
            is_fenced=settings.fence_results and not is_passing_through,
        )


class ArgumentSchemas:
    """Compiled validators by change hash; the least recently used go first.

    What a server may accept passes: null by `nullable`, `x-nullable` or `default: null`, and text of any `format`. A
    schema that does not compile or refers to a document elsewhere checks nothing: the upstream is the judge of
    its own arguments, and no reference is ever fetched.
    """

    def __init__(self) -> None:
        self._validators: OrderedDict[str, jsonschema_rs.Validator | None] = OrderedDict()

    def check(self, record: ToolRecord, arguments: Mapping[str, Any]) -> None:
        """Passes if `arguments` fit the tool.

        Raises:
            RequestError: They do not; `data` holds the path of the first problem and the whole input schema.
        """
        known = self._validators
        if (key := record.change_hash) in known:
            known.move_to_end(key)
        else:
            known[key] = _compile(_read_input_schema(record))
            if len(known) > KEPT_VALIDATORS:
                known.popitem(last=False)
        validator = known[key]
        if validator is None or validator.is_valid(arguments):
            return
        problem = next(iter(validator.iter_errors(arguments)))
        path = "/".join(str(part) for part in problem.instance_path)
        message = problem.message
        if len(message) > MESSAGE_LIMIT_CHARS:
            message = f"{message[:MESSAGE_LIMIT_CHARS]}…"
        raise RequestError(
            f"Arguments do not fit '{record.key}': {f'at {path}: ' if path else ''}{message}.",
            hint="Repair them by the input schema in data and call again. The server was not called.",
            code="invalid_arguments",
            data={"path": path, "input_schema": _read_input_schema(record)},
        )


class GateRules(msgspec.Struct, frozen=True):
    """Rules that gates decide by.

    Attributes:
        limits: From the settings.
        schemas: Compiled input schemas.
    """

    limits: CallLimits
    schemas: ArgumentSchemas


Gate = Callable[[RequestExchange, GateRules], None]
"""Raises `ProxyError` where the request must not go on."""


def check_approval(exchange: RequestExchange, rules: GateRules | None = None) -> None:
    """Pass if the server lists the item as it was approved, as far as it has listed anything."""
    if exchange.lists is not None and exchange.record is not None:
        exchange.lists.require_approved(exchange.record)


def check_definition(exchange: RequestExchange, rules: GateRules) -> None:
    """Pass if the definition is still the one that the caller saw."""
    call, record = exchange.call, exchange.record
    if call is not None and record is not None and call.digest is not None and call.digest != record.digest:
        raise build_definition_changed_error(record)


def check_intent(exchange: RequestExchange, rules: GateRules) -> None:
    """Pass if what the agent says of its intent is within bounds."""
    intent = _NOTHING_STATED if exchange.call is None else exchange.call.intent
    if intent != _NOTHING_STATED and not (stated := policy.check_intent(intent)).allowed:
        raise RequestError(stated.reason, hint=stated.hint)


def check_variant(exchange: RequestExchange, rules: GateRules) -> None:
    """Pass if the call tool that was used covers what the tool declares to do."""
    call, record = exchange.call, exchange.record
    if call is None or record is None:
        return
    if call.variant is not None and b'"visibility"' in record.raw and is_for_apps_alone(record.raw):
        raise RefusedError(
            f"'{record.key}' is for the interface of its server alone, not for a model.",
            hint="Use another tool of the server; its interface calls this one by itself.",
            code="app_only",
        )
    decision = policy.decide(
        record.key, call.variant, record.annotations, call.intent, is_strict=rules.limits.is_strict
    )
    if not decision.allowed:
        raise RefusedError(
            decision.reason,
            hint=decision.hint,
            code="intent_mismatch",
            data={"call_with": f"call_tool_{policy.call_with(record.annotations)}"},
        )


def check_arguments(exchange: RequestExchange, rules: GateRules) -> None:
    """Pass if the arguments fit the tool's input schema."""
    call, record = exchange.call, exchange.record
    if call is not None and record is not None and call.is_checked:
        rules.schemas.check(record, call.arguments)


GATES: Final[tuple[Gate, ...]] = (check_approval, check_definition, check_intent, check_variant, check_arguments)


async def recheck_before_send(exchange: RequestExchange) -> None:
    """Check approval and definition again, just before sending."""
    check_approval(exchange)
    await exchange.confirm()


def build_definition_changed_error(record: ToolRecord) -> RefusedError:
    """The refusal of a call whose caller saw another definition."""
    return RefusedError(
        f"The definition of '{record.key}' is no longer the one you saw.",
        hint="Read it again with describe_tool, then call with the new digest.",
        code="definition_changed",
        data={"digest": record.digest},
    )


def _read_input_schema(record: ToolRecord) -> Any:
    return msgspec.json.decode(record.raw).get("inputSchema")


def _compile(schema: Any) -> "jsonschema_rs.Validator | None":
    if not isinstance(schema, dict):
        return None
    try:
        lenient = lenient_schema(schema)
        patterns = jsonschema_rs.FancyRegexOptions(**_PATTERN_LIMITS)
        return jsonschema_rs.validator_for(lenient, offline=True, validate_formats=False, pattern_options=patterns)
    except (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError):
        return None
