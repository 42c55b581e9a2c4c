"""Checks of what servers give against what was approved of it, byte for byte."""

import asyncio
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final

import msgspec

from smart_mcp_proxy.catalog import change_hash
from smart_mcp_proxy.errors import RefusedError
from smart_mcp_proxy.gateway.results.cleaning import clean
from smart_mcp_proxy.gateway.results.results import OFF_LOOP_BYTES
from smart_mcp_proxy.gateway.shared.app_pages import is_page, page_digest, read_page_digest
from smart_mcp_proxy.gateway.shared.refusals import content_withheld
from smart_mcp_proxy.gateway.visibility.items import Target
from smart_mcp_proxy.gateway.visibility.links import is_instruction
from smart_mcp_proxy.gateway.visibility.skill_lookup import decode_skill_entry, read_skill_manifest
from smart_mcp_proxy.models import ToolKey, ToolRecord, WithheldState
from smart_mcp_proxy.names import shelf
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.skills import SkillFile, frontmatter_problem

READ: Final = "resources/read"
GET_SKILL: Final = "skills/get"
NAME_CHARS: Final = 200


@dataclass(eq=False, repr=False)
class ContentChecks:
    """Holds back pages of interfaces and files of skills whose content is not the approved one.

    Attributes:
        is_trusted: Whether a server's policy approves whatever it lists.
        list_again: Has a server listed again, soon: what it has now is to wait for its user by name.
        is_cleaned: Whether what hides from the eye is kept from agents.
    """

    is_trusted: Callable[[str], bool]
    list_again: Callable[[str], None]
    _: KW_ONLY
    is_cleaned: bool

    def is_exact(self, method: str, target: Target) -> bool:
        """Whether the content is approved byte for byte, so that nothing of it may be changed on its way."""
        if method == GET_SKILL:
            return True
        return method == READ and (is_page(target.name) or _find_skill_file(target) is not None)

    def require_known(self, method: str, target: Target) -> None:
        """Pass unless a page or a skill is asked for that nobody could approve.

        Raises:
            QuarantinedError: The server neither lists it nor names it in a tool.
        """
        if method != READ or target.record is not None or self.is_trusted(target.server):
            return
        if is_page(target.name) or is_instruction(target.name):
            self.list_again(target.server)
            raise content_withheld(ToolKey(shelf(target.server, "resources"), target.name), WithheldState.PENDING)

    async def require_approved(self, method: str, target: Target, raw: RawResult) -> None:
        """Pass if what a server answered is what was approved.

        Raises:
            QuarantinedError: It is something else.
            RefusedError: It holds what is kept from agents, and may not be changed, or a skill's main file says of the
                skill what its entry does not.
        """
        record, is_main = target.record, method == READ and _is_main_file(target)
        if record is None or not (is_main or self.is_exact(method, target)):
            return
        text = raw.text
        check = partial(self._check, method, target, record, text)
        is_same = await asyncio.to_thread(check) if is_main or len(text) > OFF_LOOP_BYTES else check()
        if not is_same:
            self.list_again(target.server)
            refusal = content_withheld(record.key, WithheldState.CHANGED)
            refusal.delivery = "executed"
            raise refusal

    def _check(self, method: str, target: Target, record: ToolRecord, text: bytes) -> bool:
        try:
            result: Mapping[str, Any] = msgspec.json.decode(text)
            if method == GET_SKILL:
                return change_hash(record.key.server, result["skill"]) == record.change_hash
            if (file := _find_skill_file(target)) is not None:
                is_same = _is_file(result["contents"], file)
                if is_same and self.is_cleaned and clean(text) is not text:
                    raise _build_hidden_error(record.key, target.name)
                if is_same and _is_main_file(target):
                    _require_frontmatter(record, result["contents"])
                return is_same
            if _is_main_file(target):  # of a generated skill
                if "contents" in result:  # and no question
                    _require_frontmatter(record, result["contents"])
                return True
            # Of a template nobody knows the pages beforehand.
            is_open = self.is_trusted(target.server) or record.key.server == shelf(target.server, "templates")
            return is_open or page_digest(result["contents"]) == read_page_digest(record)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return False


def _find_skill_file(target: Target) -> SkillFile | None:
    """The file of a skill that is meant, as it was approved; None for anything else."""
    record = target.record
    if record is None or record.key.server != shelf(target.server, "skills"):
        return None
    return (read_skill_manifest(record.raw) or {}).get(target.name)


def _is_file(contents: Any, file: SkillFile) -> bool:
    """Whether the one part of a result has these bytes."""
    (part,) = contents
    text, blob = part.get("text"), part.get("blob")
    if text is not None and blob is not None:  # a host may read either
        return False
    data = text.encode() if text is not None else b64decode(blob, validate=True)
    return len(data) == file.size and f"sha256:{sha256(data).hexdigest()}" == file.digest


def _is_main_file(target: Target) -> bool:
    """Whether the requested file is the main file of a listed skill."""
    record = target.record
    return record is not None and record.key == (shelf(target.server, "skills"), target.name)


def _require_frontmatter(record: ToolRecord, contents: Any) -> None:
    """Pass if a skill's main file says of the skill what its entry says.

    Raises:
        RefusedError: It does not.
    """
    (part,) = contents
    text = part.get("text")
    text = text if text is not None else b64decode(part["blob"], validate=True).decode()
    if (problem := frontmatter_problem(text, decode_skill_entry(record.raw)["frontmatter"])) is None:
        return
    raise RefusedError(
        f"The main file of the skill '{record.key}' is not what its entry promises: it {problem}.",
        hint="The server is at fault; its user approved what the entry says. Use another skill.",
        delivery="executed",
        code="frontmatter_differs",
    )


def _build_hidden_error(key: ToolKey, uri: str) -> RefusedError:
    return RefusedError(
        f"A file of the skill '{key}' holds characters that hide from the eye or steer a terminal: "
        f"{uri[:NAME_CHARS]!r}.",
        hint="They cannot be taken out, for the file has to match its digest. The user can look at it, and let "
        "everything through with MCPPROXY_CLEAN_RESULTS=false.",
        delivery="executed",
        code="hidden_characters",
    )
