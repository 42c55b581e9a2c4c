"""The gates: checks that every request passes, in their order, before anything is sent.

A gate passes by returning and refuses by raising. It does not wait and has no clock; what waits for its turn is
admission (`admission.py`), which follows the gates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from smart_mcp_proxy import policy
from smart_mcp_proxy.errors import RefusedError, RequestError
from smart_mcp_proxy.gateway.calls.exchange import Exchange
from smart_mcp_proxy.gateway.calls.schemas import ArgumentSchemas
from smart_mcp_proxy.models import ToolRecord
from smart_mcp_proxy.policy import ArgumentsKept
from smart_mcp_proxy.settings import Settings

__all__ = ["GATES", "CallLimits", "Gate", "GateRules", "approved", "definition_changed"]


@dataclass(frozen=True, slots=True)
class CallLimits:
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

    @classmethod
    def of(cls, settings: Settings, *, is_passing_through: bool) -> "CallLimits":
        """Those that the settings ask for.

        What is passed through is neither changed nor cut: nothing would be listed to read the rest with.
        """
        return cls(
            settings.intent_strict,
            0 if is_passing_through else settings.truncate_output_len or 0,
            settings.activity_args,
            is_cleaned=settings.clean_results and not is_passing_through,
            is_fenced=settings.fence_results and not is_passing_through,
        )


@dataclass(frozen=True, slots=True)
class GateRules:
    """Rules that gates decide by.

    Attributes:
        limits: From the settings.
        schemas: Compiled input schemas.
    """

    limits: CallLimits
    schemas: ArgumentSchemas


Gate = Callable[[Exchange, GateRules], None]
"""Raises `ProxyError` where the request must not go on."""


def approved(exchange: Exchange, rules: GateRules) -> None:
    """Pass if the server lists the item as it was approved, as far as it has listed anything."""
    if exchange.lists is not None and exchange.record is not None:
        exchange.lists.require_approved(exchange.record)


def definition_seen(exchange: Exchange, rules: GateRules) -> None:
    """Pass if the definition is still the one that the caller saw."""
    call, record = exchange.call, exchange.record
    if call is not None and record is not None and call.digest is not None and call.digest != record.digest:
        raise definition_changed(record)


def intent_stated(exchange: Exchange, rules: GateRules) -> None:
    """Pass if what the agent says of its intent is within bounds."""
    if exchange.call is not None and not (stated := policy.check_intent(exchange.call.intent)).allowed:
        raise RequestError(stated.reason, hint=stated.hint)


def variant_permitted(exchange: Exchange, rules: GateRules) -> None:
    """Pass if the call tool that was used covers what the tool declares to do."""
    call, record = exchange.call, exchange.record
    if call is None or record is None:
        return
    decision = policy.decide(
        str(record.key), call.variant, record.annotations, call.intent, is_strict=rules.limits.is_strict
    )
    if not decision.allowed:
        raise RefusedError(
            decision.reason,
            hint=decision.hint,
            code="intent_mismatch",
            data={"call_with": f"call_tool_{policy.call_with(record.annotations)}"},
        )


def arguments_fit(exchange: Exchange, rules: GateRules) -> None:
    """Pass if the arguments fit the tool's input schema."""
    call, record = exchange.call, exchange.record
    if call is not None and record is not None and call.is_checked:
        rules.schemas.check(record, call.arguments)


GATES: Final[tuple[Gate, ...]] = (approved, definition_seen, intent_stated, variant_permitted, arguments_fit)


def definition_changed(record: ToolRecord) -> RefusedError:
    """The refusal of a call whose caller saw another definition."""
    return RefusedError(
        f"The definition of '{record.key}' is no longer the one you saw.",
        hint="Read it again with describe_tool, then call with the new digest.",
        code="definition_changed",
        data={"digest": record.digest},
    )
