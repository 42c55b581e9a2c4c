"""Errors in the parameters of a request, by the protocol's names."""

from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError


def invalid_parameters(error: ValidationError) -> MCPError:
    """The answer to a request whose parameters are not its method's: which one, and what is wrong with it.

    Where several forms are allowed, it is about the one that the request says it has.
    """
    faults: Sequence[Mapping[str, Any]] = error.errors(include_url=False, include_input=False)
    kinds = [fault for fault in faults if fault["type"] == "literal_error"]
    others = {fault["loc"][:-1] for fault in kinds}
    meant = [fault for fault in faults if fault["loc"][:-1] not in others]
    if meant or not kinds:
        fault = (meant or faults)[0]
        wrong = "is missing" if fault["type"] == "missing" else "is not what the method takes"
        where = _place(fault["loc"])
    else:
        where, wrong = _place(kinds[0]["loc"]), "is none of " + ", ".join(kind["ctx"]["expected"] for kind in kinds)
    return MCPError(code=mcp_types.INVALID_PARAMS, message=f"Invalid request parameters: '{where}' {wrong}.")


def _place(location: Sequence[str | int]) -> str:
    """Without the SDK's names of the forms that a member may have, which are names of its classes."""
    return ".".join(part for part in map(str, location) if not (part[:1].isupper() and hasattr(mcp_types, part)))
