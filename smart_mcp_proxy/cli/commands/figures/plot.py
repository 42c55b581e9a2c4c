"""Plots for a terminal: columns of blocks over time."""

from collections.abc import Sequence
from typing import Final

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_PLAIN: Final = "     ####"
"""Where the terminal's encoding has no blocks."""
_WIDEST: Final = 4
"""Characters of one column, its gap included."""


def columns(values: Sequence[float], *, width: int, height: int = 8, is_plain: bool = False) -> list[str]:
    """Draw values as columns, from left to right; the scale stands at the left.

    Args:
        values: In their order; below 0 counts as 0. Where there are more than characters, neighbours are added up.
        width: Characters of a line.
        height: Lines.
        is_plain: Whether ASCII alone is used.

    Returns:
        The lines, without blanks at their ends.
    """
    top = max(values, default=0)
    label_chars = max(len(_short(top)), 1)
    room = max(8, width - label_chars - 2)
    heights = _bin_values([max(0.0, float(value)) for value in values], room)
    top = max(heights, default=0.0)
    label_chars = len(_short(top))
    share = max(1, min(_WIDEST, room // max(1, len(heights))))
    blocks = _PLAIN if is_plain else _EIGHTHS
    lines = []
    for row in range(height, 0, -1):
        cells = [_cell(value / top * height - (row - 1) if top else 0.0, blocks) for value in heights]
        drawn = "".join((cell * max(1, share - 1)).ljust(share) for cell in cells)
        label = _short(top) if row == height else "0" if row == 1 else ""
        lines.append(f"{label:>{label_chars}} {'|' if is_plain else '│'}{drawn}".rstrip())
    return lines


def _cell(eighths: float, blocks: str) -> str:
    """Return one row's part of a column; a value above 0 always shows."""
    full = max(0.0, min(1.0, eighths))
    return blocks[min(8, round(full * 8)) or (1 if full > 0 else 0)]


def _bin_values(values: list[float], room: int) -> list[float]:
    """At most `room` values: neighbours together where there are more."""
    size = -(-len(values) // room) or 1
    return [sum(values[start : start + size]) for start in range(0, len(values), size)]


def _short(value: float) -> str:
    """`950`, `12k`, `3.4M`."""
    for unit, least in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= least:
            return f"{value / least:.3g}{unit}"
    return f"{value:.3g}"
