"""REST: the server file and its profiles."""

from typing import Any

import msgspec
from starlette.requests import Request

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.settings import PREFIX, environment, origins
from smart_mcp_proxy.web.rest.route import Endpoint


class ConfigView(msgspec.Struct, frozen=True):
    """The server file.

    Attributes:
        path: Where it is; empty where the servers do not come from a file.
        revision: Differs whenever its text does.
        servers: Its entries, secrets masked.
    """

    path: str
    revision: str
    servers: dict[str, Any]


class ProfileView(msgspec.Struct, frozen=True):
    """A profile that is served at `/mcp/p/NAME`: its servers and tools (all if empty), and what it pins."""

    name: str
    servers: list[str]
    tools: list[str]
    pin: list[str]


class SettingView(msgspec.Struct, frozen=True):
    """A setting with the value in force; a secret is only said to be set.

    Attributes:
        variable: Environment variable.
        value: As it would be written there.
        origin: default, environment or flag.
        default: The value without any.
        help: Its use.
    """

    variable: str
    value: str
    origin: str
    default: str
    help: str


async def _settings(gateway: Gateway, request: Request) -> list[SettingView]:
    environ, settings = environment(), gateway.settings
    # All that was given, and not by the environment.
    flags = {name for name in settings.model_fields_set if f"{PREFIX}{name.upper()}" not in environ}
    found = origins(settings, environ, flags)
    return [
        SettingView(one.setting.variable, one.value, one.origin, one.setting.default, one.setting.help) for one in found
    ]


async def _config(gateway: Gateway, request: Request) -> ConfigView:
    path, revision = await gateway.admin.management.file()
    listed = await gateway.admin.management.servers()
    return ConfigView(path, revision, {server.name: server.config for server in listed.servers})


async def _profiles(gateway: Gateway, request: Request) -> list[ProfileView]:
    return [
        ProfileView(profile.name, list(profile.servers), list(profile.tools), list(profile.pin))
        for profile in gateway.lists.views.profiles
    ]


ROUTES = (
    Endpoint("GET", "/config", _config, "The server file, secrets masked, with its revision.", ConfigView),
    Endpoint("GET", "/settings", _settings, "The settings in force and their origin.", list[SettingView]),
    Endpoint("GET", "/profiles", _profiles, "The profiles in force.", list[ProfileView]),
)
