"""Writes the golden files of `tools/list` and the default greeting anew: python scripts/regenerate_golden.py.

Read the difference before committing it: these are the words that every model sees first.
"""

import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "interaction" / "golden")]

from listing import (  # noqa: E402  (found on the path set above)
    ERAS,
    SCRIPT_SETTINGS,
    default_greeting_file,
    golden_file,
    managing_tool_file,
    proxy_tool_file,
    rendered,
    rendered_default_greeting,
    rendered_managing_tool,
    rendered_proxy_tool,
    rendered_script_tool,
    script_tool_file,
)


def main() -> None:
    """Writes one file per era, one per setting of scripts, and says which of them changed."""
    files = {golden_file(era): rendered(era) for era in ERAS}
    files |= {script_tool_file(setting): rendered_script_tool(setting) for setting in SCRIPT_SETTINGS}
    files[managing_tool_file()] = rendered_managing_tool()
    files[proxy_tool_file()] = rendered_proxy_tool()
    files[default_greeting_file()] = rendered_default_greeting()
    for file, rendering in files.items():
        text = asyncio.run(rendering)
        before = file.read_text("utf-8") if file.exists() else ""
        file.write_text(text, "utf-8")
        print(f"{file.relative_to(ROOT)}: {'as it was' if text == before else 'changed'}")


if __name__ == "__main__":
    main()
