"""Demo server `colors`: color notations, contrast and palettes."""

import colorsys
import re
from typing import Any

from smart_mcp_proxy.demo.tool import Server, array, boolean, build_object_schema, integer, number, string

SERVER = Server("Convert, compare, mix and name colors.")

_Rgb = tuple[int, int, int]

_NAMED: dict[str, _Rgb] = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "gray": (128, 128, 128),
    "red": (255, 0, 0),
    "green": (0, 128, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "cyan": (0, 255, 255),
    "magenta": (255, 0, 255),
    "orange": (255, 165, 0),
    "purple": (128, 0, 128),
    "brown": (165, 42, 42),
    "pink": (255, 192, 203),
    "navy": (0, 0, 128),
    "teal": (0, 128, 128),
    "olive": (128, 128, 0),
}
"""Source: https://www.w3.org/TR/css-color-4/#named-colors"""
_AA_CONTRAST = 4.5
"""Source: https://www.w3.org/TR/WCAG22/#contrast-minimum"""

_COLOR = string("Hexadecimal color such as #1e90ff, or an English color name")
_NAME = {"name": string("Name"), "color": string("Its hexadecimal color")}
_PART = {"minimum": 0, "maximum": 255}


@SERVER.tool(
    "Hex to RGB", {"red": integer("0 to 255"), "green": integer("0 to 255"), "blue": integer("0 to 255")}, color=_COLOR
)
def hex_to_rgb(color: str) -> dict[str, Any]:
    """Convert a hexadecimal color code or a color name to its red, green and blue parts."""
    red, green, blue = _rgb(color)
    return {"red": red, "green": green, "blue": blue}


@SERVER.tool(
    "RGB to hex",
    {"color": string("Hexadecimal color")},
    red=integer("Red part", **_PART),
    green=integer("Green part", **_PART),
    blue=integer("Blue part", **_PART),
)
def rgb_to_hex(red: int, green: int, blue: int) -> dict[str, Any]:
    """Convert red, green and blue parts to a hexadecimal color code."""
    return {"color": _hex((red, green, blue))}


@SERVER.tool(
    "Contrast ratio",
    {"ratio": number("Contrast ratio"), "is_readable": boolean("True if it passes level AA for body text")},
    foreground=_COLOR,
    background=_COLOR,
)
def contrast_ratio(foreground: str, background: str) -> dict[str, Any]:
    """Check the accessibility of a text color on a background: WCAG contrast ratio, 1 to 21."""
    dark, light = sorted((_luminance(_rgb(foreground)), _luminance(_rgb(background))))
    ratio = (light + 0.05) / (dark + 0.05)
    return {"ratio": round(ratio, 2), "is_readable": ratio >= _AA_CONTRAST}


@SERVER.tool(
    "Mix colors",
    {"color": string("Hexadecimal color")},
    first=_COLOR,
    second=_COLOR,
    share=number("Share of the second color", minimum=0, maximum=1, default=0.5),
)
def mix_colors(first: str, second: str, share: float) -> dict[str, Any]:
    """Blend two colors in a given proportion."""
    pairs = zip(_rgb(first), _rgb(second), strict=True)
    red, green, blue = (round(a * (1 - share) + b * share) for a, b in pairs)
    return {"color": _hex((red, green, blue))}


@SERVER.tool(
    "Make a palette",
    {"colors": array("Hexadecimal colors, the given one first", items={"type": "string"})},
    color=_COLOR,
    count=integer("How many colors", minimum=1, maximum=24, default=5),
)
def make_palette(color: str, count: int) -> dict[str, Any]:
    """Generate a harmonious color palette from one color, for example for the series of a chart."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*(part / 255 for part in _rgb(color)))
    palette = []
    for position in range(count):
        parts = colorsys.hls_to_rgb((hue + position / count) % 1, lightness, saturation)
        red, green, blue = (round(part * 255) for part in parts)
        palette.append(_hex((red, green, blue)))
    return {"colors": palette}


@SERVER.tool(
    "Name a color",
    {"names": array("Nearest first", items=build_object_schema(_NAME))},
    color=_COLOR,
    limit=integer("How many names", minimum=1, maximum=len(_NAMED), default=1),
)
def name_color(color: str, limit: int) -> dict[str, Any]:
    """Find the English color names that are closest to a color."""
    wanted = _rgb(color)

    def distance(name: str) -> int:
        return sum((a - b) ** 2 for a, b in zip(wanted, _NAMED[name], strict=True))

    return {"names": [{"name": name, "color": _hex(_NAMED[name])} for name in sorted(_NAMED, key=distance)[:limit]]}


def _rgb(color: str) -> _Rgb:
    if color.lower() in _NAMED:
        return _NAMED[color.lower()]
    digits = color.removeprefix("#")
    if re.fullmatch("[0-9a-fA-F]{3}", digits):
        digits = "".join(digit * 2 for digit in digits)
    if not re.fullmatch("[0-9a-fA-F]{6}", digits):
        raise ValueError(f"'{color}' is not a color. Expected #rrggbb, #rgb or one of: {', '.join(_NAMED)}.")
    red, green, blue = bytes.fromhex(digits)
    return red, green, blue


def _hex(color: _Rgb) -> str:
    return "#" + bytes(color).hex()


def _luminance(color: _Rgb) -> float:
    """Relative luminance in [0, 1]. Source: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""
    red, green, blue = (
        part / 255 / 12.92 if part / 255 <= 0.04045 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in color
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
