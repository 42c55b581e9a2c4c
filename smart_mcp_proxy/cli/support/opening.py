"""Early answers to the client on stdio, until the gateway takes over."""

import os
from typing import TYPE_CHECKING

from smart_mcp_proxy.desktop.places import words_for_stdio
from smart_mcp_proxy.greeting.eras import stdio_eras
from smart_mcp_proxy.greeting.greeter import Greeter, Handed, HandedGreeter
from smart_mcp_proxy.greeting.record import GreetingRecord, default_answers

if TYPE_CHECKING:
    from smart_mcp_proxy.servers import ServerFile
    from smart_mcp_proxy.settings import Settings

_SAYS_NOTHING = frozenset(
    {
        "activity_args", "activity_days", "activity_rows", "bm25_engine", "broker_requests", "calls_burst",
        "calls_per_s", "clean_results", "config_json", "config_path", "data_dir", "embedder", "fence_results",
        "hf_model", "host", "in_flight", "isolation", "keep_alive", "learn", "log_file", "log_format", "log_level",
        "openai_model", "person_in_flight", "person_quota", "port", "shared", "start_parallel", "strict", "transport",
        "trust",
    }
)  # fmt: skip
"""Settings that no greeting and no list of tools depends on; a test holds it so."""
_KNOWN = frozenset({"routing_type", "stdio_era"})
"""Settings for whose values the answers are known as well."""


class StdioHandover:
    """Early answers to the one client on stdio, and its hand-over to the gateway."""

    def __init__(self) -> None:
        self._greeter: Greeter | HandedGreeter | None = None
        self.record: GreetingRecord | None = None
        """Where the answers of this start are to be kept; None where no client is on stdin."""

    def begin(self, words: list[str], queued: Handed | None = None) -> None:
        """Answers as the last start with the same words, settings and server file did, if there was one.

        Args:
            words: The command line.
            queued: What the client has said already; None where nobody has read it.
        """
        environ = os.environ  # noqa: TID251  (the settings, whose home it is, take 0.15 s to import)
        if not words_for_stdio(words, environ):
            return
        try:
            self.record = GreetingRecord(words, environ)
        except OSError:  # the working directory is gone: whoever needs it says so
            return
        if queued is not None:
            self._greeter = HandedGreeter(queued)
        elif (found := self.record.load()) is not None:
            self._greeter = Greeter.open(*found)

    def begin_anew(self, settings: "Settings", file: "ServerFile", *, is_whole: bool) -> None:
        """Answers at the first start ever, where nothing is stored that an answer could depend on.

        Args:
            settings: As they are read.
            file: The servers.
            is_whole: The client sees the gateway, not one server or profile of it.
        """
        if self.record is None or self._greeter is not None or not (is_whole and _is_default(settings, file)):
            return
        reached = [name for name, config in file.servers.items() if not config.is_off]
        known, name = default_answers(reached, is_growing=settings.routing_type != "CALL_TOOL")
        self._greeter = Greeter.open(known, name, stdio_eras(settings.stdio_era, settings.routing_type))

    def take(self) -> Greeter | HandedGreeter | None:
        """The greeter, for the server that takes over; None where there is none."""
        greeter, self._greeter = self._greeter, None
        return greeter

    def refuse(self, why: str) -> None:
        """Answers the waiting requests with an error: there will be no server."""
        if (greeter := self.take()) is not None:
            greeter.refuse(f"The gateway did not start: {why}")


opening = StdioHandover()
"""A process has one stdin."""


def _is_default(settings: "Settings", file: "ServerFile") -> bool:
    default = type(settings)()
    names = type(settings).model_fields.keys() - _SAYS_NOTHING - _KNOWN
    return (
        all(getattr(settings, name) == getattr(default, name) for name in names)
        and not any(config.pin or config.connection == "per_client" for config in file.servers.values())
        and not file.profiles
        and not os.path.lexists(settings.data_dir / "proxy.db")
    )
