"""Demo server `colors`: color notations, contrast and palettes."""

import colorsys
import re
from typing import Any

from smart_mcp_proxy.demo.tool import Server, Tool, array, boolean, integer, items, number, string

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


def hex_to_rgb(color: str) -> dict[str, Any]:
    """A color's red, green and blue parts."""
    red, green, blue = _rgb(color)
    return {"red": red, "green": green, "blue": blue}


def rgb_to_hex(red: int, green: int, blue: int) -> dict[str, Any]:
    """A color in hexadecimal notation."""
    return {"color": _hex((red, green, blue))}


def contrast_ratio(foreground: str, background: str) -> dict[str, Any]:
    """Contrast ratio of one color on another, from 1 to 21."""
    dark, light = sorted((_luminance(_rgb(foreground)), _luminance(_rgb(background))))
    ratio = (light + 0.05) / (dark + 0.05)
    return {"ratio": round(ratio, 2), "is_readable": ratio >= _AA_CONTRAST}


def mix_colors(first: str, second: str, share: float) -> dict[str, Any]:
    """A color between two others."""
    pairs = zip(_rgb(first), _rgb(second), strict=True)
    red, green, blue = (round(a * (1 - share) + b * share) for a, b in pairs)
    return {"color": _hex((red, green, blue))}


def make_palette(color: str, count: int) -> dict[str, Any]:
    """Colors of the same lightness and strength, evenly spread around the color wheel."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*(part / 255 for part in _rgb(color)))
    palette = []
    for position in range(count):
        parts = colorsys.hls_to_rgb((hue + position / count) % 1, lightness, saturation)
        red, green, blue = (round(part * 255) for part in parts)
        palette.append(_hex((red, green, blue)))
    return {"colors": palette}


def name_color(color: str, limit: int) -> dict[str, Any]:
    """The named colors that are nearest to a color."""
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


_COLOR = "Hexadecimal color such as #1e90ff, or an English color name"
_PART = {"minimum": 0, "maximum": 255}

SERVER = Server(
    instructions="Convert, compare, mix and name colors.",
    tools=(
        Tool(
            hex_to_rgb,
            title="Hex to RGB",
            description="Convert a hexadecimal color code or a color name to its red, green and blue parts.",
            parameters={"color": string(_COLOR)},
            output={"red": integer("0 to 255"), "green": integer("0 to 255"), "blue": integer("0 to 255")},
        ),
        Tool(
            rgb_to_hex,
            title="RGB to hex",
            description="Convert red, green and blue parts to a hexadecimal color code.",
            parameters={
                "red": integer("Red part", **_PART),
                "green": integer("Green part", **_PART),
                "blue": integer("Blue part", **_PART),
            },
            output={"color": string("Hexadecimal color")},
        ),
        Tool(
            contrast_ratio,
            title="Contrast ratio",
            description="Check the accessibility of a text color on a background: WCAG contrast ratio, 1 to 21.",
            parameters={"foreground": string(_COLOR), "background": string(_COLOR)},
            output={
                "ratio": number("Contrast ratio"),
                "is_readable": boolean("True if it passes level AA for body text"),
            },
        ),
        Tool(
            mix_colors,
            title="Mix colors",
            description="Blend two colors in a given proportion.",
            parameters={
                "first": string(_COLOR),
                "second": string(_COLOR),
                "share": number("Share of the second color", minimum=0, maximum=1, default=0.5),
            },
            output={"color": string("Hexadecimal color")},
        ),
        Tool(
            make_palette,
            title="Make a palette",
            description="Generate a harmonious color palette from one color, for example for the series of a chart.",
            parameters={
                "color": string(_COLOR),
                "count": integer("How many colors", minimum=1, maximum=24, default=5),
            },
            output={"colors": array("Hexadecimal colors, the given one first", "string")},
        ),
        Tool(
            name_color,
            title="Name a color",
            description="Find the English color names that are closest to a color.",
            parameters={
                "color": string(_COLOR),
                "limit": integer("How many names", minimum=1, maximum=len(_NAMED), default=1),
            },
            output={
                "names": items("Nearest first", {"name": string("Name"), "color": string("Its hexadecimal color")})
            },
        ),
    ),
)
