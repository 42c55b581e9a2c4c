"""What every model reads before anything else: pinned byte for byte, and small.

After a change that is meant, write the files anew and look at the difference: `python scripts/regenerate_golden.py`.
"""

import json
import re

import anyio
import pytest
from listing import ERAS, SCRIPT_SETTINGS, golden_file, rendered, rendered_script_tool, script_tool_file

from smart_mcp_proxy.models import Era

pytestmark = pytest.mark.anyio

MAX_TOKENS = 1_600
"""UTF-8 bytes of compact JSON, four to a token. Source: docs/design/protocol-surface.md#the-fixed-list"""

MAX_SCRIPT_TOKENS = 400
"""Of `code_execution`, which is listed only where the operator asks for it."""


@pytest.mark.parametrize("era", ERAS)
async def test_the_list_is_the_golden_one_byte_for_byte(era: Era) -> None:
    """Names, words, schemas, annotations and their order, whole."""
    with anyio.fail_after(20):
        found = await rendered(era)
    assert found.encode() == golden_file(era).read_bytes()


@pytest.mark.parametrize("era", ERAS)
def test_the_list_fits_its_budget(era: Era) -> None:
    """It is paid for in every session, whether a tool is used or not."""
    listing = json.loads(golden_file(era).read_text("utf-8"))
    compact = json.dumps(listing, ensure_ascii=False, separators=(",", ":")).encode()
    assert len(compact) / 4 <= MAX_TOKENS


def test_both_eras_list_the_same_tools() -> None:
    """They differ in the envelope only."""
    old, new = (json.loads(golden_file(era).read_text("utf-8")) for era in ERAS)
    assert set(old) == {"tools"}
    assert old["tools"] == new["tools"]
    assert set(new) - set(old) == {"ttlMs", "cacheScope", "resultType", "_meta"}


def test_descriptions_are_short_and_only_structured_answers_have_an_output_schema() -> None:
    """At most six lines; what passes an upstream's result through declares no schema."""
    tools = json.loads(golden_file("handshake").read_text("utf-8"))["tools"]
    assert all(1 <= len(tool["description"].splitlines()) <= 6 for tool in tools)
    assert [tool["name"] for tool in tools if "outputSchema" in tool] == ["retrieve_tools", "describe_tool"]


def test_no_truth_value_stands_where_a_reader_expects_a_schema() -> None:
    """Google's SDK for Python converts no tool with one: `findings/google_genai_reads_a_truth_value_as_a_schema.sh`."""
    files = [file.read_text("utf-8") for file in golden_file("handshake").parent.glob("*.json")]
    assert len(files) >= 7
    assert not [text for text in files if re.search(r'"additionalProperties": (true|false)', text)]


@pytest.mark.parametrize("setting", SCRIPT_SETTINGS)
async def test_the_tool_for_scripts_is_the_golden_one_byte_for_byte(setting: str) -> None:
    """Behind the six, which stay as they are, and for at most 400 tokens more."""
    with anyio.fail_after(20):
        found = await rendered_script_tool(setting)
    assert found.encode() == script_tool_file(setting).read_bytes()
    assert len(json.dumps(json.loads(found), separators=(",", ":")).encode()) / 4 <= MAX_SCRIPT_TOKENS
