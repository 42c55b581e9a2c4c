"""Demo server `clock`: times, dates and time zones."""

from calendar import isleap
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from smart_mcp_proxy.demo.tool import Server, array, boolean, integer, number, string

SERVER = Server("The current time, and calculations with dates, durations and time zones.")

_MAX_ZONES = 50
_ZONE_NAME = "IANA time zone name such as Europe/Berlin"
_ISO_TIME = "ISO 8601 date and time such as 2026-03-01T14:30"
_ISO_DATE = "ISO 8601 date such as 2026-03-01"
_MOMENT = {
    "time": string("ISO 8601 time with its offset"),
    "weekday": string("English name of the weekday"),
    "unix": number("Seconds since 1970-01-01 UTC"),
}
_part = partial(integer, default=0, minimum=-1_000_000, maximum=1_000_000)


@SERVER.tool("Current time", _MOMENT, timezone=string(_ZONE_NAME, default="UTC"))
def now(timezone: str) -> dict[str, Any]:
    """Get the current date and time in a time zone."""
    return _describe_moment(datetime.now(_zone(timezone)))


@SERVER.tool(
    "Convert time zone",
    _MOMENT,
    time=string(f"{_ISO_TIME}; an offset in it wins over from_timezone"),
    from_timezone=string(f"{_ZONE_NAME}, where the time was read"),
    to_timezone=string(f"{_ZONE_NAME}, where the time is wanted"),
)
def convert_timezone(time: str, from_timezone: str, to_timezone: str) -> dict[str, Any]:
    """Convert a date and time from one time zone to another."""
    moment = datetime.fromisoformat(time)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_zone(from_timezone))
    return _describe_moment(moment.astimezone(_zone(to_timezone)))


@SERVER.tool(
    "Days between dates",
    {"days": integer("Whole days"), "weeks": number("The same in weeks")},
    start=string(_ISO_DATE),
    end=string(_ISO_DATE),
)
def date_difference(start: str, end: str) -> dict[str, Any]:
    """Count the days and weeks between two calendar dates; negative if the end is earlier."""
    days = (date.fromisoformat(end) - date.fromisoformat(start)).days
    return {"days": days, "weeks": days / 7}


@SERVER.tool(
    "Add a duration",
    {"time": string("The resulting ISO 8601 date and time")},
    time=string(_ISO_TIME),
    days=_part("Days to add"),
    hours=_part("Hours to add"),
    minutes=_part("Minutes to add"),
)
def add_duration(time: str, days: int, hours: int, minutes: int) -> dict[str, Any]:
    """Add days, hours and minutes to a date and time, or subtract them with negative numbers."""
    return {"time": (datetime.fromisoformat(time) + timedelta(days=days, hours=hours, minutes=minutes)).isoformat()}


@SERVER.tool(
    "Describe a date",
    {
        "weekday": string("English name of the weekday"),
        "iso_week": integer("ISO 8601 week number"),
        "day_of_year": integer("1 for the first of January"),
        "is_leap_year": boolean("True if the year has 366 days"),
    },
    day=string(_ISO_DATE),
)
def describe_date(day: str) -> dict[str, Any]:
    """Tell the weekday, ISO week number and day of the year of a date, and if it is a leap year."""
    value = date.fromisoformat(day)
    return {
        "weekday": value.strftime("%A"),
        "iso_week": value.isocalendar().week,
        "day_of_year": value.timetuple().tm_yday,
        "is_leap_year": isleap(value.year),
    }


@SERVER.tool(
    "Read a Unix timestamp",
    _MOMENT,
    seconds=number("Seconds since 1970-01-01 UTC"),
    timezone=string(_ZONE_NAME, default="UTC"),
)
def from_unix_time(seconds: float, timezone: str) -> dict[str, Any]:
    """Convert a Unix timestamp (seconds since 1970) to a readable date and time."""
    return _describe_moment(datetime.fromtimestamp(seconds, _zone(timezone)))


@SERVER.tool(
    "List time zones",
    {
        "timezones": array("Names in alphabetical order", items={"type": "string"}),
        "total": integer("How many there are"),
    },
    contains=string("Part of the name, in any case, such as a city; empty for all", default=""),
)
def list_timezones(contains: str) -> dict[str, Any]:
    """Find IANA time zone names that contain a text; at most 50 are listed."""
    names = sorted(name for name in available_timezones() if contains.lower() in name.lower())
    return {"timezones": names[:_MAX_ZONES], "total": len(names)}


def _zone(name: str) -> tzinfo:
    if name.upper() == "UTC":  # works without a time zone database too
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise ValueError(f"There is no time zone '{name}'. list_timezones finds the names.") from exc


def _describe_moment(moment: datetime) -> dict[str, Any]:
    return {"time": moment.isoformat(timespec="seconds"), "weekday": moment.strftime("%A"), "unix": moment.timestamp()}
