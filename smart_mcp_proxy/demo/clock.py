"""Demo server `clock`: times, dates and time zones."""

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from smart_mcp_proxy.demo.tool import Server, Tool, array, boolean, integer, number, string

MAX_ZONES = 50


def now(timezone: str) -> dict[str, Any]:
    """The current time."""
    return _describe_moment(datetime.now(_zone(timezone)))


def convert_timezone(time: str, from_timezone: str, to_timezone: str) -> dict[str, Any]:
    """The same moment on another clock."""
    moment = datetime.fromisoformat(time)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_zone(from_timezone))
    return _describe_moment(moment.astimezone(_zone(to_timezone)))


def date_difference(start: str, end: str) -> dict[str, Any]:
    """The time between two dates."""
    days = (date.fromisoformat(end) - date.fromisoformat(start)).days
    return {"days": days, "weeks": days / 7}


def add_duration(time: str, days: int, hours: int, minutes: int) -> dict[str, Any]:
    """A later or earlier time."""
    return {"time": (datetime.fromisoformat(time) + timedelta(days=days, hours=hours, minutes=minutes)).isoformat()}


def describe_date(day: str) -> dict[str, Any]:
    """Weekday, ISO week and position in the year."""
    value = date.fromisoformat(day)
    is_leap_year = (date(value.year, 12, 31) - date(value.year, 1, 1)).days == 365
    return {
        "weekday": value.strftime("%A"),
        "iso_week": value.isocalendar().week,
        "day_of_year": value.timetuple().tm_yday,
        "is_leap_year": is_leap_year,
    }


def from_unix_time(seconds: float, timezone: str) -> dict[str, Any]:
    """The time that a Unix timestamp names."""
    return _describe_moment(datetime.fromtimestamp(seconds, _zone(timezone)))


def list_timezones(contains: str) -> dict[str, Any]:
    """Names of time zones."""
    names = sorted(name for name in available_timezones() if contains.lower() in name.lower())
    return {"timezones": names[:MAX_ZONES], "total": len(names)}


def _zone(name: str) -> tzinfo:
    if name.upper() == "UTC":  # works without a time zone database too
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise ValueError(f"There is no time zone '{name}'. list_timezones finds the names.") from exc


def _describe_moment(moment: datetime) -> dict[str, Any]:
    return {"time": moment.isoformat(timespec="seconds"), "weekday": moment.strftime("%A"), "unix": moment.timestamp()}


_ZONE_NAME = "IANA time zone name such as Europe/Berlin"
_ISO_TIME = "ISO 8601 date and time such as 2026-03-01T14:30"
_ISO_DATE = "ISO 8601 date such as 2026-03-01"
_MOMENT = {
    "time": string("ISO 8601 time with its offset"),
    "weekday": string("English name of the weekday"),
    "unix": number("Seconds since 1970-01-01 UTC"),
}

SERVER = Server(
    instructions="The current time, and calculations with dates, durations and time zones.",
    tools=(
        Tool(
            now,
            title="Current time",
            description="Get the current date and time in a time zone.",
            parameters={"timezone": string(_ZONE_NAME, default="UTC")},
            output=_MOMENT,
        ),
        Tool(
            convert_timezone,
            title="Convert time zone",
            description="Convert a date and time from one time zone to another.",
            parameters={
                "time": string(f"{_ISO_TIME}; an offset in it wins over from_timezone"),
                "from_timezone": string(f"{_ZONE_NAME}, where the time was read"),
                "to_timezone": string(f"{_ZONE_NAME}, where the time is wanted"),
            },
            output=_MOMENT,
        ),
        Tool(
            date_difference,
            title="Days between dates",
            description="Count the days and weeks between two calendar dates; negative if the end is earlier.",
            parameters={"start": string(_ISO_DATE), "end": string(_ISO_DATE)},
            output={"days": integer("Whole days"), "weeks": number("The same in weeks")},
        ),
        Tool(
            add_duration,
            title="Add a duration",
            description="Add days, hours and minutes to a date and time, or subtract them with negative numbers.",
            parameters={
                "time": string(_ISO_TIME),
                "days": integer("Days to add", default=0, minimum=-1_000_000, maximum=1_000_000),
                "hours": integer("Hours to add", default=0, minimum=-1_000_000, maximum=1_000_000),
                "minutes": integer("Minutes to add", default=0, minimum=-1_000_000, maximum=1_000_000),
            },
            output={"time": string("The resulting ISO 8601 date and time")},
        ),
        Tool(
            describe_date,
            title="Describe a date",
            description="Tell the weekday, ISO week number and day of the year of a date, and if it is a leap year.",
            parameters={"day": string(_ISO_DATE)},
            output={
                "weekday": string("English name of the weekday"),
                "iso_week": integer("ISO 8601 week number"),
                "day_of_year": integer("1 for the first of January"),
                "is_leap_year": boolean("True if the year has 366 days"),
            },
        ),
        Tool(
            from_unix_time,
            title="Read a Unix timestamp",
            description="Convert a Unix timestamp (seconds since 1970) to a readable date and time.",
            parameters={
                "seconds": number("Seconds since 1970-01-01 UTC"),
                "timezone": string(_ZONE_NAME, default="UTC"),
            },
            output=_MOMENT,
        ),
        Tool(
            list_timezones,
            title="List time zones",
            description=f"Find IANA time zone names that contain a text; at most {MAX_ZONES} are listed.",
            parameters={"contains": string("Part of the name, in any case, such as a city; empty for all", default="")},
            output={
                "timezones": array("Names in alphabetical order", "string"),
                "total": integer("How many there are"),
            },
        ),
    ),
)
