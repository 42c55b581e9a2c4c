"""Writes the golden files of `tools/list` anew, as the code stands now: python scripts/regenerate_golden.py.

Read the difference before committing it: these are the words that every model sees first.
"""

import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "interaction" / "golden")]

from listing import ERAS, golden_file, rendered  # noqa: E402  (found on the path set above)


def main() -> None:
    """Writes one file per era and says which of them changed."""
    for era in ERAS:
        file, text = golden_file(era), asyncio.run(rendered(era))
        before = file.read_text("utf-8") if file.exists() else ""
        file.write_text(text, "utf-8")
        print(f"{file.relative_to(ROOT)}: {'as it was' if text == before else 'changed'}")


if __name__ == "__main__":
    main()
