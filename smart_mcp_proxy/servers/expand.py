"""Puts variables, files and stored secrets into a server's entry, when it is about to be connected."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from smart_mcp_proxy.desktop.withholding import is_reference
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.secrets.keyring_edge import KEYRING_SERVICE, read_keyring_secret
from smart_mcp_proxy.servers.config import Isolation, ServerConfig
from smart_mcp_proxy.servers.edit_masks import extract_masked_secrets, is_plain, mask_entry
from smart_mcp_proxy.servers.fields import check_headers, check_text, check_url
from smart_mcp_proxy.servers.oauth import EXCHANGE_SECRETS, OAUTH_SECRETS, read_oauth

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_RELATIVE_FILE = re.compile(r"\$\{file:(?![/~])")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_FORMS = "${VAR}, ${VAR:-default}, ${env:VAR}, ${file:path}, ${keyring:name}, ${userHome}, ${workspaceFolder}"
_FILE_LIMIT_BYTES = 64 * 1024
"""Room for a certificate chain; no secret is longer."""


class UnsetVariableError(ConfigError):
    """A server needs something that its surroundings do not provide; the other servers are not concerned.

    Args:
        server: The server.
        field: Where in its entry it is used, for example `env.TOKEN`.
        variable: The variable's name; `file:path` or `keyring:name` where it is one of those.
        what: The same in words, for the message.
        hint: What to do about it.
    """

    def __init__(self, server: str, field: str, variable: str, what: str, hint: str) -> None:
        super().__init__(
            f"Server {server!r} needs {what} (field {field}).",
            hint=hint,
            data={"server": server, "field": field, "variable": variable},
        )
        self.server = server
        self.field = field
        self.variable = variable


def expand(
    config: ServerConfig,
    environ: Mapping[str, str],
    *,
    keyring_get: Callable[[str], str | None] = read_keyring_secret,
    workspace: Path | None = None,
) -> ServerConfig:
    """The configuration with every `${...}` of command, args, env, cwd, url, headers and oauth filled in.

    One pass: what is put in is never looked at again. `$${` stands for `${`; `$NAME`, `$$` and `%NAME%` stay as they
    are. A variable that is set to nothing counts as unset, as in a shell's `${VAR:-default}`; a default ends at the
    first `}`. What `inherit` names joins `env`, as far as it is set. Reads files and the keyring: run it in a thread.

    Args:
        config: As loaded; it is not changed.
        environ: Variables to take values from.
        keyring_get: Looks up `${keyring:name}`; None if there is nothing under that name.
        workspace: `${workspaceFolder}` and the base of relative `${file:...}` paths; the working directory if None.

    Raises:
        UnsetVariableError: A variable, file or stored secret that is not there.
        ConfigError: A placeholder that cannot be read, or a result that cannot be used.

    Source: docs/design/protocol-surface.md#configuration; docs/servers.md#variables-and-secrets
    """
    expansion = _Expansion(config.name, environ, keyring_get, workspace or Path.cwd())
    fill = expansion.fill
    expanded = replace(
        config,
        command=fill("command", config.command),
        args=tuple(fill(f"args[{position}]", arg) for position, arg in enumerate(config.args)),
        env={
            **{name: environ[name] for name in config.inherit if name in environ},
            **{name: fill(f"env.{name}", value) for name, value in config.env.items()},
        },
        cwd=None if config.cwd is None else fill("cwd", config.cwd),
        isolation=_fill_paths(fill, config.isolation),
        url=fill("url", config.url),
        headers={name: fill(f"headers.{name}", value) for name, value in config.headers.items()},
        oauth=None
        if config.oauth is None
        else {key: _fill_oauth_value(fill, key, value) for key, value in config.oauth.items()},
    )
    if config.url:
        check_url(config.name, expanded.url)
    elif not expanded.command.strip():
        raise ConfigError(
            f"Server {config.name!r} has a command that is empty once filled in.", hint="Check 'command'."
        )
    check_headers(config.name, expanded.headers)
    if expanded.oauth is not None:
        read_oauth(config.name, expanded.oauth)
    return replace(expanded, secrets=tuple(expansion.secrets))


def _fill_paths(fill: Callable[[str, str], str], isolation: Isolation) -> Isolation:
    allow = isolation.allow
    if allow is None:
        return isolation
    read, write = (tuple(fill("allow", path) for path in paths) for paths in (allow.read, allow.write))
    return replace(isolation, allow=replace(allow, read=read, write=write))


def references(text: str) -> Iterator[str]:
    """Yield, in words, what `expand()` would read for a text, except the two known folders."""
    for found in _PLACEHOLDER.finditer(text):
        kind, _, rest = (found[1] or "").partition(":")
        if kind in ("file", "keyring") and rest:
            yield f"the {'file' if kind == 'file' else 'keyring entry'} {rest!r}"
        elif found[1] not in (None, "userHome", "workspaceFolder") and (variable := _VARIABLE.fullmatch(found[1])):
            yield f"the environment variable {variable[1]}"


def find_variables(config: ServerConfig, *, is_optional: bool = False) -> set[str]:
    """Names of the variables of the gateway's environment that `expand()` would read for an entry.

    Args:
        config: As loaded.
        is_optional: Only those that it does without: with a default, or inherited.
    """
    bodies = (found[1] for text in _texts(config) for found in _PLACEHOLDER.finditer(text))
    named = (_VARIABLE.fullmatch(body or "") for body in bodies)
    found = {each[1] for each in named if each and (not is_optional or each[2] is not None)}
    return found - {"userHome", "workspaceFolder"} | {*config.inherit}


def uses_workspace(config: ServerConfig) -> bool:
    """Whether an entry means another thing in another working directory."""
    if any("${workspaceFolder}" in text or _RELATIVE_FILE.search(text) for text in _texts(config)):
        return True
    return config.cwd is not None and not config.cwd.startswith(("/", "~", "$"))


def _texts(config: ServerConfig) -> Iterator[str]:
    """Every text of an entry that may hold placeholders."""
    yield from (config.command, config.cwd or "", config.url, *config.args, *config.env.values())
    yield from config.headers.values()
    oauth = config.oauth or {}
    for value in (*oauth.values(), *(oauth.get("exchange") or {}).values()):
        yield from (text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))


def _fill_oauth_value(fill: Callable[[str, str], str], key: str, value: object) -> object:
    """Fill in the placeholders of a value of `oauth`: text, or a list of texts."""
    if isinstance(value, list):
        return [_fill_oauth_value(fill, key, item) for item in value]
    if isinstance(value, Mapping):
        return {name: _fill_oauth_value(fill, f"{key}.{name}", inner) for name, inner in value.items()}
    return fill(f"oauth.{key}", value) if isinstance(value, str) else value


def collect_secrets(expanded: ServerConfig) -> list[str]:
    """Every value of an expanded configuration that no log may show, the longest first.

    These are the values that `expand()` put in, the values of env and headers however they came there, the bare
    credentials of an Authorization header, the secrets of an OAuth client, and what is masked in arguments and address.
    """
    variables = {value for name, value in expanded.env.items() if not is_plain(name, value)}
    values = {*expanded.secrets, *variables, *expanded.headers.values()}
    for name, value in expanded.headers.items():
        if name.lower() == "authorization":
            values.add(value.partition(" ")[2])
    oauth = expanded.oauth or {}
    trade = oauth.get("exchange") or {}
    secrets = [*(oauth.get(key) for key in OAUTH_SECRETS), *(trade.get(key) for key in EXCHANGE_SECRETS)]
    values.update(secret for secret in secrets if isinstance(secret, str))
    values |= {*_extract_part_secrets(args=[*expanded.args]), *_in_address(expanded.url)}
    return sorted(values - {""}, key=lambda value: (-len(value), value))


def _extract_part_secrets(**part: object) -> Iterator[str]:
    return extract_masked_secrets(part, mask_entry(part))


def _in_address(url: str) -> set[str]:
    """Secrets of an address, as written and as meant; a plain word in its query is none."""
    written = {text for text in _extract_part_secrets(url=url) if any(map(str.isdigit, text))}
    written.add(urlsplit(url).password or "")
    return written | set(map(unquote, written))


class _Expansion:
    """Fills the fields of one server and remembers what was put in."""

    def __init__(
        self, server: str, environ: Mapping[str, str], keyring_get: Callable[[str], str | None], workspace: Path
    ) -> None:
        self._server = server
        self._environ = environ
        self._keyring_get = keyring_get
        self._workspace = workspace
        self._home = environ.get("HOME") or str(Path.home())
        self.secrets: list[str] = []

    def fill(self, field: str, text: str) -> str:
        """`text` with its placeholders filled in."""
        return check_text(self._server, field, _PLACEHOLDER.sub(lambda found: self._value(field, found), text))

    def _value(self, field: str, found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        body = found[1]
        if not found[2]:
            raise self._unreadable(field)
        if body == "userHome":
            return self._home
        if body == "workspaceFolder":
            return str(self._workspace)
        kind, _, rest = body.partition(":")
        if kind == "file" and rest:
            return self._secret(self._from_file(field, rest))
        if kind == "keyring" and rest:
            return self._secret(self._from_keyring(field, rest))
        if not (variable := _VARIABLE.fullmatch(body)):
            raise self._unreadable(field)
        return self._from_environment(field, variable[1], variable[2])

    def _secret(self, value: str) -> str:
        self.secrets.append(value)
        return value

    def _from_environment(self, field: str, name: str, default: str | None) -> str:
        if (value := self._environ.get(name)) and not is_reference(name, value):
            return value if is_plain(name, value) else self._secret(value)
        if default is not None:
            return default
        raise UnsetVariableError(
            self._server,
            field,
            name,
            f"the environment variable {name}",
            f"Set it where the gateway starts, or write a default: ${{{name}:-...}}. Where a client that starts the "
            "gateway withholds it, as Codex and Gemini CLI do: mcpproxy connect CLIENT --write",
        )

    def _from_file(self, field: str, written: str) -> str:
        path = self._workspace / (self._home + written[1:] if written.startswith("~/") else written)
        try:
            with path.open("rb") as file:
                data = file.read(_FILE_LIMIT_BYTES + 1)
        except OSError as exc:
            what = f"the file {path}, which cannot be read: {exc.strerror}"
            raise UnsetVariableError(self._server, field, f"file:{written}", what, "Create it.") from exc
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = ""
        if not text.strip() or len(data) > _FILE_LIMIT_BYTES:
            what = f"text in the file {path}, at most {_FILE_LIMIT_BYTES} bytes"
            raise UnsetVariableError(self._server, field, f"file:{written}", what, "Write the value into it.")
        return text.rstrip("\r\n")

    def _from_keyring(self, field: str, name: str) -> str:
        what = f"the keyring entry {name!r}"
        try:
            value = self._keyring_get(name)
        except ConfigError as exc:
            raise UnsetVariableError(self._server, field, f"keyring:{name}", what, str(exc)) from exc
        if not value:
            hint = f"Store it: keyring set {KEYRING_SERVICE} {name}"
            raise UnsetVariableError(self._server, field, f"keyring:{name}", what, hint)
        return value

    def _unreadable(self, field: str) -> ConfigError:
        return ConfigError(
            f"Server {self._server!r} has a placeholder that cannot be read (field {field}).",
            hint=f"Known: {_FORMS}; write $${{ for a literal ${{.",
        )
