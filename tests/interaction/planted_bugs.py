"""Bugs in the gateway that are met where a request holds a word. As a program it is `mcpproxy` with these bugs."""

from collections.abc import Callable
from typing import Any

from smart_mcp_proxy.gateway.admin.management import Management
from smart_mcp_proxy.gateway.broker.brokering import Brokering
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.retrieval.retrieval import Retrieval
from smart_mcp_proxy.gateway.sessions.agent import Agent
from smart_mcp_proxy.gateway.sessions.content_handlers import ContentHandlers

WORD = "planted-bug"
INSIDE = "what only the inside knows: /srv/gateway/secret"


def _buggy(method: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        if WORD in repr((args[1:], kwargs)):
            raise KeyError(INSIDE)
        return await method(*args, **kwargs)

    return wrapped


def _buggy_at_once(method: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if WORD in repr((args[1:], kwargs)):
            raise KeyError(INSIDE)
        return method(*args, **kwargs)

    return wrapped


def plant(put: Callable[[Any, str, Any], None]) -> None:
    """Puts the bugs in: a search, a call, a list, a prompt, a listener to new sessions, routes of
    REST and the broker.

    Args:
        put: `setattr`, or what takes it back later.
    """
    for owner, name in (
        (Retrieval, "retrieve"),
        (Calls, "call"),
        (Agent, "list_tools"),
        (ContentHandlers, "answer"),
        (Management, "server"),
    ):
        put(owner, name, _buggy(getattr(owner, name)))
    put(Agent, "open_session", _buggy_at_once(Agent.open_session))
    put(Brokering, "status", _buggy_at_once(Brokering.status))


if __name__ == "__main__":
    from smart_mcp_proxy.cli import main

    plant(setattr)
    main()
