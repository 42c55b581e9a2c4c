"""Write docs/terminal.svg, the moving picture of a run on a terminal: python scripts/terminal_picture.py [--check].

The command runs on a pseudo-terminal, so that it wraps and colours as for a person; the picture needs no font or script
from elsewhere.
"""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "terminal.svg"
WORDS = ["demo", "how many days between two dates"]
COLUMNS = 100
SHOWN = 10
LAST = 2
"""Lines of the output that are shown, from its beginning and from its end."""
FONT_FACE = re.compile(r"\s*@font-face \{.*?\n    \}", re.DOTALL)
MOTION = """
    @media (prefers-reduced-motion: no-preference) {
        text[clip-path]:not([clip-path$="-line-0)"]) { animation: said 15s infinite; }
        #mcpproxy-line-0 rect { animation: typed 15s infinite; }
    }
    @keyframes typed {
        0% { width: 25px; animation-timing-function: steps(50); }
        15% { width: 640px; }
        16%, 100% { width: 1220px; }
    }
    @keyframes said { 0%, 20% { opacity: 0; } 20.01%, 100% { opacity: 1; } }
    """
"""The command is typed, then answered; who wants no motion sees all of it."""
ERASED = re.compile(rb"\x1b\[(1A|2K)")
PROGRESS = re.compile(rb"\x1b\[\?25l.*?\x1b\[\?25h", re.DOTALL)


def run(words: list[str]) -> str:
    """What a terminal is sent by `mcpproxy` with these words; what a progress bar overwrote is left out."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    env = kept | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    command = [sys.executable, "-m", "smart_mcp_proxy", *words]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            chunk = os.read(ours, 65_536)
        except OSError:  # nobody has the other end any more
            break
        if not chunk:
            break
        said += chunk
    os.close(ours)
    if process.wait(60):
        raise SystemExit(said.decode())
    return ERASED.sub(b"", PROGRESS.sub(b"", said)).decode().replace("\r", "")


def picture(words: list[str], output: str) -> str:
    """The command and its output as an SVG document."""
    lines = output.rstrip("\n").split("\n")
    if len(lines) > SHOWN + LAST:
        lines = [*lines[:SHOWN], "...", *lines[-LAST:]]
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    typed = " ".join(f'"{word}"' if " " in word else word for word in words)
    console.print(Text.assemble(("$ ", "green"), (f"mcpproxy {typed}", "bold")))
    console.print(Text.from_ansi("\n".join(lines)))
    drawn = console.export_svg(title="mcpproxy", theme=MONOKAI, unique_id="mcpproxy")
    # Some viewers drop the blanks at a line's beginning otherwise.
    drawn = drawn.replace("<svg ", '<svg xml:space="preserve" ', 1).replace("    </style>", MOTION + "</style>", 1)
    return FONT_FACE.sub("", drawn).replace("Fira Code", "ui-monospace") + "\n"


def main() -> int:
    drawn = picture(WORDS, run(WORDS))
    if "--check" in sys.argv:
        is_fresh = PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == drawn
        print("docs/terminal.svg is " + ("up to date" if is_fresh else "out of date: run scripts/terminal_picture.py"))
        return int(not is_fresh)
    PICTURE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
