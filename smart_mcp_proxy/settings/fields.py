"""Every setting: its name, type, limits, default and what it is for."""

import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from smart_mcp_proxy.models import ROLES
from smart_mcp_proxy.names import RESERVED_NAMES
from smart_mcp_proxy.plugins import EMBEDDERS_GROUP, ENGINES_GROUP
from smart_mcp_proxy.settings.addresses import (
    are_group_quotas,
    are_group_roles,
    are_networks,
    are_origins,
    are_users,
    bearer_only,
    is_database,
    is_quota,
    is_url,
)
from smart_mcp_proxy.settings.choices import OneOf, list_choices

PREFIX = "MCPPROXY_"
_MESSAGE_DEFAULT_BYTES = 16 * 1024 * 1024
_MESSAGE_MIN_BYTES = 1024
_MESSAGE_MAX_BYTES = 1024 * 1024 * 1024
"""Highest value: a message is in memory several times while it is decoded, so a gibibyte is the end of the sensible."""

_INTEGER = re.compile(r"[+-]?[0-9]+")


def _from_text(value: object, info: ValidationInfo) -> object:
    """Read enums in any case, integers as plain digits: pydantic would take `5.0` and `1_0`."""
    if not isinstance(value, str) or info.field_name is None:
        return value
    field = Settings.model_fields[info.field_name]
    text = value.strip()
    if choices := list_choices(field):
        return next((choice for choice in choices if choice.lower() == text.lower()), text)
    if int in (field.annotation, *get_args(field.annotation)) and not _INTEGER.fullmatch(text):
        raise ValueError("not an integer")
    return value


_TRUNCATE_MIN_CHARS = 200
"""Below it, marker and tail leave no room for the head. Source: docs/design/wire-formats.md#truncation"""
_TOOL_NAME = r"[A-Za-z0-9_-]{1,64}"
"""A name that every client can list; the length is that of models' programming interfaces.

Source: docs/design/wire-formats.md#names-of-tools"""


def _expand_home(path: Path | None) -> Path | None:
    try:
        return path and path.expanduser()
    except RuntimeError as exc:  # a user id without an entry and without HOME, as in some containers
        raise ValueError(str(exc)) from exc


def _zero_is_off(value: int | None) -> int | None:
    if value is not None and 0 < value < _TRUNCATE_MIN_CHARS:
        raise ValueError("too short")
    return value or None


def _own_tool_name(name: str) -> str:
    # Listed names of servers' tools hold a double underscore.
    if not re.fullmatch(_TOOL_NAME, name) or "__" in name or name in RESERVED_NAMES - {"proxy"}:
        raise ValueError("not a free name")
    return name


def _split_list(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _split_argv(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


def _accepts(what: str, *, is_secret: bool = False) -> Any:
    """Metadata with words for what a field accepts, where its type does not say it."""
    return Field(json_schema_extra={"allowed": what, "is_secret": is_secret})


_Secret = Annotated[SecretStr, AfterValidator(bearer_only)]
_Directory = Annotated[Path, AfterValidator(_expand_home)]
_File = Annotated[Path | None, AfterValidator(_expand_home)]
_Token = Annotated[_Secret | None, _accepts("visible ASCII characters without spaces", is_secret=True)]
_SecretKey = Annotated[
    Annotated[_Secret, Field(min_length=32)] | None,
    _accepts("at least 32 random characters, visible ASCII without spaces", is_secret=True),
]
_ToolName = Annotated[
    Annotated[str, AfterValidator(_own_tool_name)] | None,
    _accepts("letters, digits, _ and -, at most 64, without __ and not another tool's name"),
]
_DatabaseUrl = Annotated[
    Annotated[_Secret, AfterValidator(is_database)] | None,
    _accepts(
        "an address such as postgresql://user:password@host:5432/database, special characters as %XX", is_secret=True
    ),
]
_Url = Annotated[Annotated[str, AfterValidator(is_url)] | None, _accepts("an http or https URL")]
_Truncation = Annotated[
    int | None,
    Field(ge=0),
    AfterValidator(_zero_is_off),
    _accepts(f"0 (off) or an integer of at least {_TRUNCATE_MIN_CHARS}"),
]
_Names = Annotated[tuple[str, ...], BeforeValidator(_split_list)]
_Origins = Annotated[
    _Names, AfterValidator(are_origins), _accepts("origins such as https://app.example, separated by commas")
]
_Networks = Annotated[
    _Names,
    AfterValidator(are_networks),
    _accepts("addresses and networks such as 10.0.0.5,10.1.0.0/16,fd00::/8, separated by commas"),
]
_Users = Annotated[
    _Names, AfterValidator(are_users), _accepts("users such as ann@example.com=write,@example.com, separated by commas")
]
_Operators = Annotated[
    _Names, AfterValidator(are_users), _accepts("users such as ann@example.com,@example.com, separated by commas")
]
_GroupRoles = Annotated[
    _Names,
    AfterValidator(are_group_roles),
    _accepts(
        f"groups with a role each such as devs=viewer,security=approver ({', '.join(ROLES)}), with commas between"
    ),
]
_Quota = Annotated[
    Annotated[str, AfterValidator(is_quota)] | None, _accepts("calls in a time such as 500/day (minute, hour, day)")
]
_GroupQuotas = Annotated[
    _Names, AfterValidator(are_group_quotas), _accepts("groups with a quota each such as devs=5000/day,guests=20/hour")
]
_ReplicaName = Annotated[
    Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")] | None,
    _accepts("lower-case letters, digits and hyphens, at most 63"),
]
_Argv = Annotated[
    Annotated[tuple[str, ...], BeforeValidator(_split_argv)] | None, _accepts("a command line with balanced quotes")
]


class Settings(BaseSettings):
    """Every setting, checked and frozen; `load_settings()` fills it from environment and flags.

    Constructed directly it reads nothing but its arguments, so a test or an embedding program is never surprised by
    the shell it runs in.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="ignore", validate_default=True, hide_input_in_errors=True
    )

    routing_type: Literal["CALL_TOOL", "DYNAMIC", "AUTO"] = Field(
        default="CALL_TOOL",
        description="How found tools are offered: by call tools, by registering them, or per client.",
    )
    stdio_era: Literal["auto", "handshake", "both"] = Field(
        default="auto", description="Protocol eras on stdio; auto leaves 2026-07-28 out where searches register tools."
    )
    embedder: Annotated[str, OneOf(EMBEDDERS_GROUP, ("AUTO", "BM25", "HF", "OPENAI", "HYBRID"))] = Field(
        default="AUTO",
        description="What ranks tools: words and built-in vectors, words, a local model, OpenAI, or words and a model.",
    )
    bm25_engine: Annotated[str, OneOf(ENGINES_GROUP, ("builtin", "rank_bm25"))] = Field(
        default="builtin", description="Which BM25 implementation to use."
    )
    hf_model: str = Field(
        default="sentence-transformers/all-MiniLM-L6-v2",
        min_length=1,
        description="Hugging Face model for EMBEDDER=HF.",
    )
    openai_model: str = Field(
        default="text-embedding-3-small",
        min_length=1,
        description="Embedding model for EMBEDDER=OPENAI, at OPENAI_BASE_URL with OPENAI_API_KEY.",
    )
    learn: bool = Field(
        default=False, description="Whether questions that led to a call become examples of that tool, kept locally."
    )
    top_k: int = Field(default=5, ge=1, le=50, description="Tools that one search returns if the agent does not say.")
    tools_limit: int = Field(default=15, ge=1, le=100, description="Tools registered at a time under DYNAMIC routing.")
    list_all_below_tokens: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="A catalog whose definitions cost fewer tokens (estimated) is listed whole; 0 never.",
    )
    always_load: bool = Field(
        default=True,
        description="Whether clients that hide tools behind their own search (Claude Code) are asked to show ours.",
    )
    list_check: bool = Field(
        default=False,
        description="Whether agents are shown the parameter check of describe_tool, which is understood in any case.",
    )
    instructions: Annotated[str, _accepts("servers, plain, or a text to tell instead")] = Field(
        default="servers",
        description="What a model is told at connection: how to search, with the names of its servers or plain.",
    )
    tool_name_limit: int = Field(default=60, ge=10, le=200, description="Characters of a listed tool name.")
    truncate_output_len: _Truncation = Field(
        default=None,
        description="Characters of a tool's output, marker included; the rest stays readable with read_output.",
    )
    clean_results: bool = Field(
        default=True,
        description="Whether terminal commands, direction marks and invisible characters are taken out of what servers "
        "say (results, errors, questions, progress, logs); --passthrough changes nothing.",
    )
    fence_results: bool = Field(
        default=False,
        description="Whether text of tools, resources and prompts, and what errors, progress and logs quote, stands "
        "between two lines that mark it as untrusted, beyond any cut; --passthrough changes nothing.",
    )
    transport: Literal["stdio", "streamable-http", "sse"] = Field(
        default="stdio", description="How agents reach the gateway."
    )
    shared: bool = Field(
        default=True, description="Whether clients that start the gateway on stdio join the one that runs already."
    )
    keep_alive: int = Field(
        default=300,
        ge=0,
        le=86_400,
        description="Seconds that the gateway in the background goes on after its last client has left.",
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on for the HTTP transports.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    stop_delay_s: int = Field(
        default=0,
        ge=0,
        le=600,
        description="Seconds for which a stop by a signal only turns /readyz to 503, so that balancers look elsewhere.",
    )
    workers: int = Field(
        default=1, ge=1, le=64, description="Processes that serve HTTP together, on one port and one catalog."
    )
    max_sessions: int = Field(
        default=1_000,
        ge=1,
        le=100_000,
        description="Sessions of the handshake era that a process keeps open, and streams of /sse likewise; one more "
        "takes the place of a session that was idle for 60 s, else it is refused (503).",
    )
    replica: _ReplicaName = Field(
        default=None,
        description="Name of this gateway among those that share a database, behind the dot of each session's id; "
        "else the host's, so gateways on one host need a name each.",
    )
    auth_token: _Token = Field(default=None, description="Bearer token that agents must send over HTTP.")
    auth_token_file: _File = Field(default=None, description="File that holds the bearer token, read at the start.")
    operator_token: _Token = Field(
        default=None, description="Bearer token of the operator over HTTP; else the data directory's."
    )
    operator_token_file: _File = Field(default=None, description="File that holds that token, read at the start.")
    jwt_jwks_url: _Url = Field(
        default=None,
        description="Where an identity provider publishes its keys; its signed tokens (JWT) are accepted then.",
    )
    jwt_public_key: Annotated[str | None, _accepts("a public key in PEM")] = Field(
        default=None, description="The provider's public key in PEM, instead of JWT_JWKS_URL."
    )
    jwt_public_key_file: _File = Field(default=None, description="File that holds that key, read at the start.")
    jwt_issuer: str | None = Field(default=None, min_length=1, description="Issuer that signed tokens must name.")
    jwt_audience: str | None = Field(
        default=None, min_length=1, description="Audience that they must name; else PUBLIC_URL with /mcp behind it."
    )
    jwt_algorithm: Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"] = (
        Field(default="RS256", description="Algorithm that they must be signed with.")
    )
    jwt_servers_claim: str = Field(
        default="mcp_servers", min_length=1, description="Claim that names the servers they reach; without it all."
    )
    oidc_url: Annotated[_Url, _accepts("an http or https URL that ends in /.well-known/openid-configuration")] = Field(
        default=None,
        description="Discovery address of an OpenID Connect provider; people sign in there to use the gateway.",
    )
    oidc_client_id: str | None = Field(
        default=None, min_length=1, description="Client id that the provider has given to the gateway."
    )
    oidc_client_secret: _Token = Field(
        default=None, description="Its secret; a client without one proves itself by PKCE alone."
    )
    oidc_client_secret_file: _File = Field(default=None, description="File that holds it, read at the start.")
    oidc_scopes: Annotated[_Names, _accepts("scopes, separated by commas")] = Field(
        default=("openid", "email"),
        description="Scopes to ask the provider for; some give a renewable sign-in for offline_access only.",
    )
    oidc_users: _Users = Field(
        default=(),
        description="Who may use the gateway: verified e-mail addresses, @domain, subjects (without @) or *; =write or "
        "=destructive behind one allows more than reading.",
    )
    oidc_operators: _Operators = Field(
        default=(), description="Who of them may use the page at /ui, in the same words; nobody where it is empty."
    )
    group_roles: _GroupRoles = Field(
        default=(),
        description="Roles of the identity provider's groups, which let their people in: at the page, over REST and at "
        "tools; unknown groups get nothing.",
    )
    groups_claim: str = Field(
        default="groups", min_length=1, description="Claim that names the groups somebody is in, as a list of names."
    )
    public_url: _Url = Field(
        default=None,
        description="Address under which clients reach the gateway, without /mcp; told in sign-in and toolsets.",
    )
    allowed_hosts: Annotated[_Names, _accepts("host names, separated by commas")] = Field(
        default=(), description="Host names under which clients may reach the gateway, besides the loopback names."
    )
    trusted_proxies: _Networks = Field(
        default=(),
        description="Balancers and proxies in front, by address or network: whom they name in X-Forwarded-For, else "
        "Forwarded, is the client where requests are counted by address. Anybody else's such fields are ignored.",
    )
    cors_origins: _Origins = Field(
        default=(), description="Origins of pages in a browser that may use the HTTP broker; none by default."
    )
    broker_requests: int = Field(
        default=256,
        ge=1,
        le=100_000,
        description="Requests that one caller may have under way at the HTTP broker, open streams among them.",
    )
    config_path: _File = Field(
        default=None, description="Server list; else ./mcp_config.json, then mcp_config.json in the data directory."
    )
    registry_url: _Url = Field(
        default=None, description="MCP registry (API v0.1) that `mcpproxy server add --registry` asks."
    )
    registry_token: _Token = Field(default=None, description="Bearer token that this registry asks for, if any.")
    serve_cards: bool = Field(
        default=False,
        description="Whether server cards of /mcp and its profiles, and their catalog, are served behind its token.",
    )
    serve_registry: bool = Field(
        default=False,
        description="Whether /v0.1/servers lists /mcp and its profiles as a registry does, behind its token.",
    )
    search_hints: bool = Field(
        default=False,
        description="Whether servers' tools that are listed carry hints for clients with a tool search of their own.",
    )
    config_json: Annotated[str | None, _accepts("JSON text", is_secret=True)] = Field(
        default=None, repr=False, description="The server list itself as JSON text, instead of a file."
    )
    data_dir: _Directory = Field(
        default=Path("~/.mcpproxy"),
        description="Directory of the catalog and its index; one that is set has to be usable.",
    )
    database_url: _DatabaseUrl = Field(
        default=None,
        description="PostgreSQL database (15 or newer) that holds the catalog for many gateways, instead of a file.",
    )
    database_url_file: _File = Field(default=None, description="File that holds that address, read at the start.")
    secret_key: _SecretKey = Field(
        default=None,
        description="What gateways on one database encrypt their secrets with; their tokens come from it, too.",
    )
    secret_key_file: _File = Field(default=None, description="File that holds that key, read at the start.")
    reset_data: bool = Field(default=False, description="Whether to empty the catalog at the start.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Least level that is logged."
    )
    log_file: _File = Field(default=None, description="File that receives the log as well as stderr.")
    log_format: Literal["console", "json"] = Field(
        default="console", description="Log lines for people, or JSON lines."
    )
    metrics: bool = Field(
        default=False, description="Whether /metrics answers Prometheus, on the HTTP port with the operator's token."
    )
    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port on HOST that serves /metrics and nothing else, to whoever can connect; also beside stdio.",
    )
    list_changed_exec: _Argv = Field(
        default=None,
        description="Command to run, without a shell, after the list of tools changed; at most once in 5 s.",
    )
    intent_strict: bool = Field(default=True, description="Whether call_tool_read takes only tools marked read-only.")
    trust: Literal["manual", "scan", "trusted"] = Field(
        default="manual",
        description="Who approves tools: you, but for a server's first list; the scanner where it finds nothing, in "
        "first lists too; or nobody. A tool that calls itself less dangerous than before waits for you in any case.",
    )
    approvals: int = Field(
        default=1,
        ge=1,
        le=5,
        description="Different people who must approve a definition that changed or is new before agents see it; an "
        "entry may ask for more.",
    )
    isolation: Literal["auto", "none", "sandbox", "container"] = Field(
        default="auto",
        description="How servers on stdio are held whose entry does not say it. auto: in a sandbox, where the system "
        "has one and the catalog has not seen the server before.",
    )
    strict: bool = Field(default=False, description="Whether a missing optional package stops the start.")
    proxy_tool: _ToolName = Field(
        default=None,
        description="Name under which agents are shown the proxy tool, which reaches everything; unset: not shown.",
    )
    manage: bool = Field(default=False, description="Whether agents are shown the tool that manages servers.")
    read_only: bool = Field(default=False, description="Whether nobody may change the servers through the gateway.")
    allow_server_add: bool = Field(default=True, description="Whether agents may add servers, in quarantine.")
    allow_server_remove: bool = Field(default=True, description="Whether agents may remove servers.")
    in_flight: int = Field(
        default=256,
        ge=0,
        le=100_000,
        description="Calls at the same time; a server without a limit of its own takes at most half. 0 is no limit.",
    )
    calls_per_s: Annotated[float, _accepts("a number from 0 to 100000")] = Field(
        default=0.0,
        ge=0,
        le=100_000,
        allow_inf_nan=False,
        description="Calls a second, on average, that one caller is allowed; 0 is no limit.",
    )
    calls_burst: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="Calls that one caller may start at once before CALLS_PER_S counts; 0 is one second's worth.",
    )
    person_in_flight: int = Field(default=0, ge=0, le=100_000, description="Calls one person may have at once; 0: any.")
    person_quota: _Quota = Field(
        default=None, description="Calls that one person may make, tokens that they made included, in a time."
    )
    group_quotas: _GroupQuotas = Field(default=(), description="Calls that a group's people may make together.")
    activity_args: Literal["none", "shape", "redacted", "full"] = Field(
        default="shape",
        description="What the activity log keeps of arguments: nothing, names and sizes, values without secrets, all.",
    )
    activity_days: int = Field(default=30, ge=1, le=3650, description="Days that the activity log goes back.")
    activity_rows: int = Field(
        default=100_000,
        ge=0,
        le=1_000_000_000,
        description="Records that the activity log holds at most, over all gateways on one store; 0 is no limit.",
    )
    activity_export: str | None = Field(
        default=None,
        description="Where each record of the activity log goes as well: syslog://HOST:514, syslog+tcp://HOST:601, "
        "syslog:///dev/log, or otlp.",
    )
    inherit_env: Annotated[_Names, _accepts("names with commas between")] = Field(
        default=(), description="Variables of the gateway's environment that every stdio server gets as they are."
    )
    start_parallel: int = Field(
        default=4, ge=1, le=64, description="Servers that may start at the same time; after 10 s one no longer counts."
    )
    code: Literal["off", "python", "javascript", "both"] = Field(
        default="off", description="Languages in which agents may run scripts that call tools, in a sandbox."
    )
    code_timeout_s: int = Field(default=30, ge=1, le=600, description="Seconds that a script may take, calls included.")
    code_memory_mb: int = Field(default=256, ge=64, le=4096, description="MiB of memory that a script may use.")
    code_max_calls: int = Field(default=100, ge=1, le=10_000, description="Calls that a script may make.")
    code_parallel: int = Field(default=4, ge=1, le=64, description="Scripts that may run at the same time.")
    max_message_bytes: int = Field(
        default=_MESSAGE_DEFAULT_BYTES,
        ge=_MESSAGE_MIN_BYTES,
        le=_MESSAGE_MAX_BYTES,
        description="Bytes of one message from or to a client or a server.",
    )

    @property
    def has_metrics(self) -> bool:
        """Whether activity is counted for a monitoring system."""
        return self.metrics or self.metrics_port is not None

    _read_text = field_validator("*", mode="before")(_from_text)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take arguments only: `load_settings` passes the environment with every value's origin."""
        return (init_settings,)
