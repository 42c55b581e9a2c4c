"""One conversation with each demo server that calls every tool of it; used by test_demo_servers.py.

Each line: tool name, arguments, and what the answer must be: the exact text, some of the structured content's
properties, or a function that judges the structured content or text.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

Expected = str | dict[str, Any] | Callable[[Any], bool]

CONVERSATIONS: dict[str, list[tuple[str, dict[str, Any], Expected]]] = {
    "calculator": [
        ("evaluate", {"expression": "(2 + 3) * sqrt(16) - -1"}, {"result": 21.0}),
        ("evaluate", {"expression": "2 ** 100"}, {"result": 2**100}),
        ("summarize_numbers", {"values": [1, 2, 3, 4]}, {"count": 4, "sum": 10.0, "median": 2.5, "maximum": 4}),
        ("convert_units", {"value": 10, "from_unit": "km", "to_unit": "m"}, {"result": 10_000.0, "unit": "m"}),
        ("convert_units", {"value": 212, "from_unit": "F", "to_unit": "C"}, {"result": 100.0}),
        ("list_units", {}, lambda found: len(found["quantities"]) == 6),
        ("factorize", {"value": 360}, {"factors": [2, 2, 2, 3, 3, 5], "is_prime": False}),
        ("convert_base", {"digits": "-ff", "from_base": 16}, "-11111111"),
        (
            "loan_payment",
            {"principal": 1200, "annual_rate_percent": 0, "months": 12},
            {"monthly_payment": 100.0, "total_interest": 0.0},
        ),
    ],
    "clock": [
        ("now", {}, lambda found: datetime.fromisoformat(found["time"]).utcoffset().total_seconds() == 0),
        (
            "convert_timezone",
            {"time": "2026-01-15T12:00", "from_timezone": "Europe/Berlin", "to_timezone": "Asia/Tokyo"},
            {"time": "2026-01-15T20:00:00+09:00", "weekday": "Thursday"},
        ),
        ("date_difference", {"start": "2026-01-01", "end": "2026-01-15"}, {"days": 14, "weeks": 2.0}),
        ("add_duration", {"time": "2026-02-28T23:30", "minutes": 45}, {"time": "2026-03-01T00:15:00"}),
        ("describe_date", {"day": "2028-12-31"}, {"weekday": "Sunday", "day_of_year": 366, "is_leap_year": True}),
        ("from_unix_time", {"seconds": 0}, {"time": "1970-01-01T00:00:00+00:00"}),
        ("list_timezones", {"contains": "berlin"}, {"timezones": ["Europe/Berlin"], "total": 1}),
    ],
    "colors": [
        ("hex_to_rgb", {"color": "#1E90ff"}, {"red": 30, "green": 144, "blue": 255}),
        ("rgb_to_hex", {"red": 30, "green": 144, "blue": 255}, {"color": "#1e90ff"}),
        ("contrast_ratio", {"foreground": "black", "background": "#fff"}, {"ratio": 21.0, "is_readable": True}),
        ("mix_colors", {"first": "black", "second": "white"}, {"color": "#808080"}),
        ("make_palette", {"color": "red", "count": 3}, {"colors": ["#ff0000", "#00ff00", "#0000ff"]}),
        ("name_color", {"color": "#fe0102"}, {"names": [{"name": "red", "color": "#ff0000"}]}),
    ],
    "contacts": [
        ("add_contact", {"name": "Ida Berg", "company": "Cedar; Clinic"}, {"id": 5, "email": ""}),
        ("find_contacts", {"query": "cedar"}, lambda found: [c["id"] for c in found["contacts"]] == [4, 5]),
        ("update_contact", {"id": 5, "field": "email", "value": "ida@example.com"}, {"email": "ida@example.com"}),
        ("get_contact", {"id": 5}, {"name": "Ida Berg", "email": "ida@example.com"}),
        ("export_vcard", {"id": 5}, lambda text: "FN:Ida Berg\r\n" in text and "ORG:Cedar\\; Clinic\r\n" in text),
        ("delete_contact", {"id": 5}, "Deleted contact 5, Ida Berg."),
    ],
    "files": [
        ("list_files", {}, lambda found: [f["path"] for f in found["files"]] == ["data/cities.csv", "welcome.txt"]),
        ("read_file", {"path": "data/cities.csv"}, lambda text: text.startswith("city,country\n")),
        ("write_file", {"path": "new/ä.txt", "text": "one\n"}, {"path": "new/ä.txt", "size_bytes": 4}),
        ("append_to_file", {"path": "new/ä.txt", "text": "two\r\n"}, {"size_bytes": 9}),
        ("file_info", {"path": "new/ä.txt"}, {"size_bytes": 9, "lines": 2}),
        ("search_files", {"query": "TWO"}, {"matches": [{"path": "new/ä.txt", "line": 2, "text": "two"}], "total": 1}),
        ("move_file", {"source": "new/ä.txt", "target": "b.txt"}, {"path": "b.txt", "size_bytes": 9}),
        ("delete_file", {"path": "b.txt"}, "Deleted 'b.txt'."),
    ],
    "notes": [
        ("add_note", {"title": "Shopping", "text": "milk", "tags": ["home"]}, {"id": 1, "tags": ["home"]}),
        ("add_note", {"title": "Ideas"}, {"id": 2, "text": "", "tags": []}),
        ("append_to_note", {"id": 1, "text": "bread"}, {"text": "milk\nbread"}),
        ("get_note", {"id": 1}, {"title": "Shopping", "text": "milk\nbread"}),
        ("list_notes", {"tag": "home"}, {"notes": [{"id": 1, "title": "Shopping"}]}),
        ("search_notes", {"query": "BREAD home"}, {"notes": [{"id": 1, "title": "Shopping"}]}),
        ("delete_note", {"id": 1}, "Deleted note 1, 'Shopping'."),
        ("add_note", {"title": "Later"}, {"id": 3}),
        ("delete_all_notes", {}, "Deleted 2 notes."),
    ],
    "text": [
        ("count_words", {"text": "one two\nthree"}, {"words": 3, "characters": 13, "lines": 2}),
        ("slugify", {"text": "  Crème brûlée, twice! "}, "creme-brulee-twice"),
        ("diff_texts", {"before": "a\nb", "after": "a\nc"}, lambda text: text.endswith("\n a\n-b\n+c")),
        ("find_pattern", {"text": "a1 b22", "pattern": r"\d+"}, lambda found: found["total"] == 2),
        (
            "replace_pattern",
            {"text": "Ada Lovelace", "pattern": r"(\w+) (\w+)", "replacement": r"\2, \1"},
            {"text": "Lovelace, Ada", "replacements": 1},
        ),
        ("encode_base64", {"text": "grüße"}, "Z3LDvMOfZQ=="),
        ("decode_base64", {"encoded": "Z3LDvMOfZQ=="}, "grüße"),
        ("hash_text", {"text": "", "algorithm": "md5"}, "d41d8cd98f00b204e9800998ecf8427e"),
    ],
    "todo": [
        ("add_task", {"title": "Water plants"}, {"id": 1, "priority": "normal", "due": "", "is_done": False}),
        ("add_task", {"title": "File taxes", "priority": "high", "due": "2026-05-31"}, {"id": 2}),
        ("list_tasks", {}, lambda found: [task["id"] for task in found["tasks"]] == [2, 1]),
        ("reschedule_task", {"id": 2, "due": "2026-06-30"}, {"due": "2026-06-30", "previous_due": "2026-05-31"}),
        ("complete_task", {"id": 2}, {"is_done": True}),
        ("reopen_task", {"id": 2}, {"is_done": False}),
        ("complete_task", {"id": 1}, {"is_done": True}),
        ("clear_done_tasks", {}, "Deleted 1 tasks."),
        ("delete_task", {"id": 2}, "Deleted task 2, 'File taxes'."),
    ],
}
