"""One conversation with each demo server that calls every tool of it; used by test_demo_servers.py.

Each line: tool name, arguments, and what the answer must be: the exact text, some of the structured content's
properties, or a function that judges the structured content or text.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

Expected = str | dict[str, Any] | Callable[[Any], bool]

CONVERSATIONS: dict[str, list[tuple[str, dict[str, Any], Expected]]] = {
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
