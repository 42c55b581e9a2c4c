"""Letters of other scripts that look like Latin ones."""

LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0432\u0455\u0458\u0501\u0261\u03bf"
    "\u03b1\u03b5\u03b9\u03ba\u03bd\u03c1\u03c4\u03c5\u03c7",
    "aeopcyxibsjdgoaeiknptux",
)
"""Cyrillic, Greek and phonetic letters to the Latin ones. Source: https://www.unicode.org/reports/tr39/"""
