"""Metadata of `proxy` answers in annotations, where clients of the handshake era look for it.

Source: docs/design/proxy-extension.md#metadata
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from smart_mcp_proxy.proxying.metadata import FACTS, META_PREFIX

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_blocks = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])

_QUALIFIED: Final = {"Resource | ResourceTemplate": "mcp.types.Resource | mcp.types.ResourceTemplate"}
"""The union as Python writes it, which Magg 1.2.1 compares with to the letter."""


def annotate_result(raw: bytes) -> bytes:
    """The answer with the facts of each block's `_meta` among its annotations, too; all else is as it was.

    Args:
        raw: A tool's result as JSON text.
    """
    members: dict[str, Any] = dict(_members.decode(raw))
    try:
        blocks = _blocks.decode(members.get("content", b"[]"))
    except msgspec.ValidationError:  # not what the protocol calls content: nothing to write on
        return raw
    members["content"] = [annotate_block(block) for block in blocks]
    return msgspec.json.encode(members)


def annotate_block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same for one content block, whose members may be JSON text.

    Under our names a server's own annotations are not taken for ours; all others stay.
    """
    facts = _facts(block.get("_meta"))
    if not facts:
        return block
    if "pythonType" in facts:
        facts["pythonType"] = _QUALIFIED.get(facts["pythonType"], facts["pythonType"])
    theirs = {key: value for key, value in _object(block.get("annotations")).items() if key not in FACTS}
    changed = {**block, "annotations": {**theirs, **facts}}
    resource = _object(block.get("resource"))
    if own := _facts(resource.get("_meta")):
        changed["resource"] = {**resource, **own}
    return changed


def _facts(meta: Any) -> dict[str, Any]:
    """The facts that we state in `_meta`, by the draft's names."""
    ours = {key.removeprefix(META_PREFIX): value for key, value in _object(meta).items() if key.startswith(META_PREFIX)}
    return {key: _value(value) for key, value in ours.items() if key in FACTS}


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, msgspec.Raw):
        try:
            return _members.decode(value)
        except msgspec.ValidationError:  # some servers send null
            return {}
    return value if isinstance(value, Mapping) else {}


def _value(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
