"""Validation of arguments by a tool's input schema, with errors that an agent can act on."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import msgspec

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.models import ToolRecord

__all__ = ["ArgumentSchemas"]

KEPT_VALIDATORS = 512
MESSAGE_LIMIT_CHARS = 300
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=1 << 20, dfa_size_limit=1 << 20)
"""A server writes the pattern and an agent the text: neither may make a match take long."""


class ArgumentSchemas:
    """Compiled validators by change hash; the least recently used go first.

    A schema that does not compile or refers to a document elsewhere checks nothing: the upstream is the judge of
    its own arguments, and no reference is ever fetched.
    """

    def __init__(self) -> None:
        self._validators: OrderedDict[str, jsonschema_rs.Validator | None] = OrderedDict()

    def check(self, record: ToolRecord, arguments: Mapping[str, Any]) -> None:
        """Passes if `arguments` fit the tool.

        Raises:
            RequestError: They do not; `data` holds the path of the first problem and the whole input schema.
        """
        validator = self._compiled(record)
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
            data={"path": path, "input_schema": _schema_of(record)},
        )

    def _compiled(self, record: ToolRecord) -> jsonschema_rs.Validator | None:
        if record.change_hash in self._validators:
            self._validators.move_to_end(record.change_hash)
            return self._validators[record.change_hash]
        compiled = self._validators[record.change_hash] = _compile(_schema_of(record))
        if len(self._validators) > KEPT_VALIDATORS:
            self._validators.popitem(last=False)
        return compiled


def _schema_of(record: ToolRecord) -> Any:
    return msgspec.json.decode(record.raw).get("inputSchema")


def _compile(schema: Any) -> jsonschema_rs.Validator | None:
    if not isinstance(schema, dict):
        return None
    try:
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=_PATTERNS)
    except (ValueError, TypeError, jsonschema_rs.ReferencingError):
        return None
