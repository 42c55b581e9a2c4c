"""Whether a process was stopped by a signal (SIGSTOP, SIGTSTP), where the system shows it in /proc."""

from pathlib import Path


def is_stopped(pid: int) -> bool:
    """Whether the process was stopped and has not been continued; False where that cannot be told."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    # The name stands in parentheses and may hold anything, parentheses included; the state follows it.
    return stat.rpartition(b")")[2].lstrip()[:1] == b"T"
