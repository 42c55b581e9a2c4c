"""Packages that run when they are first used, not when something beside or above them is imported.

`import mcp` runs the whole SDK: its client, its high-level server, its HTTP. The gateway needs a dozen modules of it,
and FastMCP a library of signatures for one function; both take a seventh of a start, and 10 MB. The models of an era
that no client speaks take 4 % and 2 MB, a client of HTTP that nobody signs in with 3 %, cryptography that nothing is
sealed with 6 MB, uvicorn's command line 3 MB.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any, Final, Union

import mcp_types
from pydantic import ValidationError

_HANDSHAKE: Final = "mcp_types._v2025_11_25"
_ERAS: Final = (_HANDSHAKE, "mcp_types._v2026_07_28")
_STRICTER: Final = {
    "InitializeRequest", "InitializedNotification", "PingRequest", "CallToolRequest", "ListToolsRequest",
    "ListPromptsRequest", "ListResourcesRequest", "ListResourceTemplatesRequest", "SetLevelRequest",
}  # fmt: skip
"""Messages of the handshake era of which the SDK's model of all versions takes nothing that the era's does not: those
that clients begin with. The era's 154 models take a twentieth of a start."""
_NEVER: Final = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")
"""Modules that describe numpy to its readers, and nothing else: a hundredth of a start."""
_FASTMCPS: Final = ("rich.console", "rich.logging")
"""Late for FastMCP alone: others do more with their names than call them."""
_LATE: Final = (
    "mcp", "mcp.client", "mcp.server", "mcp.server.request_state", *_ERAS, "joserfc.jwk", "joserfc.jws", "joserfc.jwt",
    "jwt", "httpx2", "dotenv", "opentelemetry.propagate", "yaml", "jsonschema_rs", "regress", *_FASTMCPS,
    "sse_starlette", "uvicorn",
)  # fmt: skip
_HOMES: Final = {
    ("mcp", "MCPDeprecationWarning"): "mcp.shared.exceptions",
    ("mcp", "MCPError"): "mcp.shared.exceptions",
    ("mcp", "ServerSession"): "mcp.server.session",
    ("mcp", "GetPromptResult"): "mcp_types",
    ("mcp", "LoggingLevel"): "mcp_types",
    ("uvicorn", "Config"): "uvicorn.config",
    ("uvicorn", "Server"): "uvicorn.server",
}
"""Modules of the names that FastMCP takes from a package itself."""
_CALLED: Final = {
    ("dotenv", "dotenv_values"),
    ("joserfc.jws", "extract_compact"),
    ("mcp.server.request_state", "RequestStateBoundary"),
    ("mcp.server.request_state", "RequestStateSecurity"),
    ("opentelemetry.propagate", "extract"),
    ("opentelemetry.propagate", "inject"),
    ("rich.console", "Console"),
    ("rich.logging", "RichHandler"),
    ("sse_starlette", "EventSourceResponse"),
}
"""Names that libraries take as they are imported, and call at most."""

_LOCKS: Final = {name: RLock() for name in _LATE}
"""Lock of each: two threads that run different ones, each in the middle of an import, do not wait for each other."""


class LateModule(ModuleType):
    """A module whose code runs when a name is asked for that is not known here."""

    def __getattr__(self, name: str) -> Any:
        """The name, from wherever it is."""
        if name.startswith("__"):
            raise AttributeError(name)
        if home := _HOMES.get((self.__name__, name)):
            return getattr(import_module(home), name)
        if (self.__name__, name) in _CALLED:
            return _take_late(self, name)
        if self.__name__ in _ERAS:
            return LateModel(self, name)
        if hasattr(self, "__path__") and find_spec(module := f"{self.__name__}.{name}") is not None:
            return import_module(module)
        return getattr(_run(self, name), name)


class LateModel:
    """Stand-in for a model of an era in the SDK's tables, made when a message of the era is first checked.

    Args:
        module: Of the era.
        name: Of the model.
    """

    def __init__(self, module: ModuleType, name: str) -> None:
        self._place = (module, name)

    def model_validate(self, message: Mapping[str, Any], **options: Any) -> Any:
        """Check a message by the SDK's model of all versions, and by the era's own where that refuses it.

        Raises:
            ValidationError: It is not what the era has.
        """
        module, name = self._place
        if module.__name__ == _HANDSHAKE and name in _STRICTER:
            with suppress(ValidationError):
                return getattr(mcp_types, name).model_validate(message, **options)
        return self._find().model_validate(message, **options)

    def __getattr__(self, name: str) -> Any:
        """Give what the model has."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._find(), name)

    def __or__(self, other: Any) -> Any:
        """Build the union of two, which are made when one of them is needed."""
        return Union[self, other]  # noqa: UP007  (neither is a type)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Build the model's own schema."""
        return handler.generate_schema(self._find())

    def _find(self) -> Any:
        module, name = self._place
        if (module.__name__, name) == (_HANDSHAKE, "InitializeResult"):
            # It says the same, but keeps the extensions that a server offers; the gateway adds its own behind it.
            return getattr(mcp_types, name)
        return getattr(_run(module, name), name)


def _take_late(module: ModuleType, name: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return getattr(_run(module, name), name)(*args, **options)

    return call


def _run(module: ModuleType, name: str) -> ModuleType:
    """The module as it is without us, from here on; `name` is asked for."""
    with _LOCKS[module.__name__]:
        if type(module) is LateModule and (spec := module.__spec__) is not None and spec.loader is not None:
            if getattr(spec, "_initializing", False):  # its own code asks, and has not made it yet
                raise AttributeError(name)
            spec._initializing = True  # type: ignore[attr-defined]
            try:
                spec.loader.exec_module(module)
                module.__class__ = ModuleType  # type: ignore[assignment]  # it is an ordinary one now
            finally:
                spec._initializing = False  # type: ignore[attr-defined]
    return module


def defer_packages() -> None:
    """Has those run late that have not run yet, and some not at all."""
    sys.modules.update({name: ModuleType(name) for name in _NEVER if name not in sys.modules})
    for name in _LATE:
        spec = None if name in sys.modules else find_spec(name)
        if spec is None:
            continue
        module = module_from_spec(spec)
        module.__class__ = LateModule
        sys.modules[name] = module
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)


def restore_packages() -> None:
    """Has those that only FastMCP takes late run as usual from here on."""
    for name in _FASTMCPS:
        if type(sys.modules.get(name)) is LateModule:
            parent, _, own = name.rpartition(".")
            delattr(sys.modules[parent], own)
            del sys.modules[name]
