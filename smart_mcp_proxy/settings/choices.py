"""Settings that take one of several names."""

from typing import Any, Literal, get_args, get_origin

import msgspec
from pydantic import GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from smart_mcp_proxy.plugins import is_plugin


class OneOf(msgspec.Struct, frozen=True):
    """Accepts names of parts that are built in, and of parts that other packages offer.

    Attributes:
        group: The entry points of such packages.
        names: Of the parts that are built in.
    """

    group: str
    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check_part_name, handler(source))

    def _check_part_name(self, name: str) -> str:
        if name not in self.names and not is_plugin(self.group, name):
            raise ValueError("no such part")
        return name


def list_choices(field: FieldInfo) -> tuple[str, ...]:
    """The values of an enum field that are built in; empty for any other."""
    if get_origin(field.annotation) is Literal:
        return get_args(field.annotation)
    return next((rule.names for rule in field.metadata if isinstance(rule, OneOf)), ())
