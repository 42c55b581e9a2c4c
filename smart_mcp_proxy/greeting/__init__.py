"""First answers over stdio while the gateway is being loaded; imports nothing slow."""

from smart_mcp_proxy.greeting.answers import Answers, BacklogLine
from smart_mcp_proxy.greeting.eras import EVERY_ERA, StdioEras, stdio_eras
from smart_mcp_proxy.greeting.greeter import Greeter, Handed
from smart_mcp_proxy.greeting.record import GreetingRecord, Known, default_answers, words_for_stdio

__all__ = [
    "EVERY_ERA",
    "Answers",
    "BacklogLine",
    "Greeter",
    "GreetingRecord",
    "Handed",
    "Known",
    "StdioEras",
    "default_answers",
    "stdio_eras",
    "words_for_stdio",
]
