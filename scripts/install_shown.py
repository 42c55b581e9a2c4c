"""Installs by pip and says how far that is: pip alone is silent for a minute, or says far too much.

Usage: install_shown.py ABOUT_S PIP-ARGUMENT...; needs nothing but pip.
"""

import re
import selectors
import subprocess
import sys
import time

EVERY_S = 15
"""Off a terminal a line now and then; on one the line is written over each second."""
FOUND = re.compile(r"(?:Collecting|Obtaining|Requirement already satisfied:) ?(\S*)")
INSTALLING = "Installing collected packages:"


def describe_step(line, count, step):
    """The number of packages found so far, and in words what pip does, after one more line of it."""
    if FOUND.match(line):
        return count + 1, f"packages found: {count + 1}"
    if line.startswith(INSTALLING):
        return count, f"installing {line.count(',') + 1} of them"
    return count, "building this one" if line.startswith("Building") else step


def main() -> int:
    about_s, *words = sys.argv[1:]
    command = [sys.executable, "-m", "pip", "install", "--progress-bar", "off", *words]
    is_terminal, began_s, told_s = sys.stderr.isatty(), time.monotonic(), 0.0
    said, rest, count, step, is_open = [], b"", 0, "starting pip", True
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        looking = selectors.DefaultSelector()
        looking.register(process.stdout, selectors.EVENT_READ)
        while is_open:
            if looking.select(1.0):
                data = process.stdout.read1()
                is_open = bool(data)
                *lines, rest = (rest + data).split(b"\n")
                said += [line.decode(errors="replace") for line in lines]
                for line in said[len(said) - len(lines) :]:
                    count, step = describe_step(line.strip(), count, step)
            now_s = time.monotonic() - began_s
            if now_s - told_s >= (1 if is_terminal else EVERY_S):
                told_s = now_s
                text = f"  {step}, {now_s:.0f} s of about {about_s}"
                sys.stderr.write(f"\r\033[K{text}" if is_terminal else f"{text}\n")
                sys.stderr.flush()
    sys.stderr.write("\r\033[K" if is_terminal else "")
    if process.returncode:
        sys.stderr.write("\n".join([*said, rest.decode(errors="replace"), ""]))
        return process.returncode
    sys.stderr.write(f"  installed in {time.monotonic() - began_s:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
