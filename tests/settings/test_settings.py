"""Settings come from defaults, environment and flags; a wrong one is named with its value and what it accepts."""

import re
from pathlib import Path

import pytest

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.settings import Settings, all_settings, environment, load_settings, origins, unknown_variables
from smart_mcp_proxy.settings.pairs import SECRET_FILES

SECRETS = ("auth_token", "oidc_client_secret", "operator_token", "secret_key")


def complaint(environ: dict[str, str], **overrides: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ, **overrides)
    return caught.value.message


def test_an_empty_environment_gives_the_documented_defaults() -> None:
    """Nothing needs to be set for a first start."""
    settings = load_settings({})
    assert (settings.routing_type, settings.embedder, settings.bm25_engine) == ("CALL_TOOL", "AUTO", "builtin")
    assert (settings.top_k, settings.tools_limit, settings.tool_name_limit) == (5, 15, 60)
    assert settings.truncate_output_len is None
    assert (settings.transport, settings.host, settings.port) == ("stdio", "127.0.0.1", 8000)
    assert settings.data_dir == Path.home() / ".mcpproxy"
    assert (settings.config_path, settings.config_json, settings.auth_token) == (None, None, None)
    assert (settings.intent_strict, settings.strict, settings.reset_data) == (True, False, False)
    assert (settings.start_parallel, settings.max_message_bytes) == (4, 16 * 1024 * 1024)


def test_every_setting_can_be_given_by_its_variable(tmp_path: Path) -> None:
    """Each variable reaches its field; none is forgotten."""
    token_file = tmp_path / "token"
    token_file.write_text("secret-from-file\n")
    given = {
        "routing_type": "dynamic",
        "embedder": "hybrid",
        "bm25_engine": "RANK_BM25",
        "hf_model": "some/model",
        "openai_model": "some-model",
        "learn": "true",
        "top_k": " 7 ",
        "tools_limit": "100",
        "list_all_below_tokens": "2000",
        "isolation": "Sandbox",
        "tool_name_limit": "10",
        "truncate_output_len": "200",
        "transport": "Streamable-HTTP",
        "host": "0.0.0.0",
        "port": "0",
        "stop_delay_s": "5",
        "auth_token_file": str(token_file),
        "database_url": "postgresql://user:password@host:5432/database",
        "allowed_hosts": "gateway.example, other.example:8000,",
        "cors_origins": "https://app.example, http://localhost:3000",
        "broker_requests": "10",
        "jwt_jwks_url": "https://id.example/keys",
        "jwt_issuer": "https://id.example",
        "jwt_audience": "tools",
        "jwt_algorithm": "es256",
        "jwt_servers_claim": "servers",
        "oidc_client_id": "gateway",
        "oidc_client_secret_file": str(token_file),
        "oidc_scopes": "openid, email,offline_access",
        "oidc_users": "ann@example.com=write, @example.com,*=read",
        "trusted_proxies": "10.0.0.5, 10.1.0.0/16,fd00::/8",
        "oidc_operators": "ann@example.com",
        "public_url": "https://gateway.example/tools",
        "config_path": "servers.json",
        "data_dir": str(tmp_path),
        "reset_data": "true",
        "log_level": "debug",
        "log_file": str(tmp_path / "log"),
        "log_format": "JSON",
        "list_changed_exec": "notify 'two words'",
        "always_load": "false",
        "list_check": "true",
        "registry_url": "https://registry.example/mcp",
        "registry_token": "letmein",
        "serve_cards": "true",
        "serve_registry": "1",
        "search_hints": "yes",
        "instructions": "Search first.",
        "clean_results": "false",
        "fence_results": "true",
        "intent_strict": "false",
        "strict": "1",
        "proxy_tool": "everything",
        "manage": "true",
        "read_only": "yes",
        "allow_server_add": "false",
        "allow_server_remove": "0",
        "trust": "Scan",
        "in_flight": "64",
        "calls_per_s": "2.5",
        "calls_burst": "10",
        "person_quota": "500/day",
        "person_in_flight": "20",
        "group_quotas": "devs=5000/day, night shift=20/hour",
        "activity_args": "REDACTED",
        "activity_days": "7",
        "activity_rows": "5000",
        "activity_export": "syslog://logs.example:514",
        "inherit_env": "NPM_TOKEN, UV_INDEX_CORP_PASSWORD",
        "start_parallel": "64",
        "code": "Both",
        "workers": "2",
        "metrics": "true",
        "metrics_port": "9464",
        "max_sessions": "5000",
        "replica": "gateway-1",
        "operator_token_file": str(token_file),
        "secret_key": "k" * 32,
        "code_timeout_s": "5",
        "code_memory_mb": "64",
        "code_max_calls": "7",
        "code_parallel": "2",
        "max_message_bytes": "1024",
        "stdio_era": "both",
        "shared": "no",
        "keep_alive": "0",
    }
    environ = {f"MCPPROXY_{name.upper()}": text for name, text in given.items()}
    settings = load_settings(environ)
    assert settings.routing_type == "DYNAMIC"
    assert settings.stdio_era == "both"
    assert (settings.shared, settings.keep_alive) == (False, 0)
    assert settings.embedder == "HYBRID"
    assert settings.bm25_engine == "rank_bm25"
    assert (settings.openai_model, settings.learn) == ("some-model", True)
    assert settings.top_k == 7
    assert (settings.port, settings.stop_delay_s) == (0, 5)
    assert settings.transport == "streamable-http"
    assert settings.truncate_output_len == 200
    assert settings.auth_token is not None
    assert settings.auth_token.get_secret_value() == "secret-from-file"
    assert settings.allowed_hosts == ("gateway.example", "other.example:8000")
    assert settings.cors_origins == ("https://app.example", "http://localhost:3000")
    assert settings.broker_requests == 10
    assert (settings.jwt_jwks_url, settings.jwt_algorithm) == ("https://id.example/keys", "ES256")
    assert (settings.jwt_issuer, settings.jwt_audience) == ("https://id.example", "tools")
    assert (settings.jwt_servers_claim, settings.public_url) == ("servers", "https://gateway.example/tools")
    assert settings.oidc_client_secret is not None
    assert settings.oidc_client_secret.get_secret_value() == "secret-from-file"
    assert settings.oidc_scopes == ("openid", "email", "offline_access")
    assert settings.oidc_operators == ("ann@example.com",)
    assert settings.trusted_proxies == ("10.0.0.5", "10.1.0.0/16", "fd00::/8")
    assert settings.oidc_users == ("ann@example.com=write", "@example.com", "*=read")
    assert settings.config_path == Path("servers.json")
    assert settings.inherit_env == ("NPM_TOKEN", "UV_INDEX_CORP_PASSWORD")
    assert settings.log_level == "DEBUG"
    assert settings.log_format == "json"
    assert (settings.metrics, settings.metrics_port, settings.has_metrics) == (True, 9464, True)
    assert settings.proxy_tool == "everything"
    assert (settings.manage, settings.read_only, settings.trust) == (True, True, "scan")
    assert (settings.allow_server_add, settings.allow_server_remove) == (False, False)
    assert (settings.in_flight, settings.calls_per_s, settings.calls_burst) == (64, 2.5, 10)
    assert settings.activity_export == "syslog://logs.example:514"
    assert (settings.activity_args, settings.activity_days, settings.activity_rows) == ("redacted", 7, 5000)
    assert settings.list_changed_exec == ("notify", "two words")
    assert (settings.code, settings.code_timeout_s, settings.code_memory_mb) == ("both", 5, 64)
    assert (settings.code_max_calls, settings.code_parallel) == (7, 2)
    assert (settings.intent_strict, settings.strict, settings.reset_data) == (False, True, True)
    assert settings.instructions == "Search first."
    assert (settings.always_load, settings.clean_results, settings.fence_results) == (False, False, True)
    assert settings.registry_url == "https://registry.example/mcp"
    assert settings.registry_token is not None and settings.registry_token.get_secret_value() == "letmein"
    assert settings.list_check and settings.serve_cards and settings.serve_registry and settings.search_hints
    missing = {setting.name for setting in all_settings()} - given.keys()
    assert missing == {
        "approvals",
        "group_roles",
        "groups_claim",
        "auth_token",
        "config_json",
        "database_url_file",
        "jwt_public_key",
        "jwt_public_key_file",
        "oidc_client_secret",
        "oidc_url",
        "operator_token",
        "secret_key_file",
    }  # exclusive with given ones


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("TOP_K", "ten", "an integer from 1 to 50"),
        ("TOP_K", "0", "an integer from 1 to 50"),
        ("TOP_K", "51", "an integer from 1 to 50"),
        ("TOP_K", "5.5", "an integer from 1 to 50"),
        ("TOP_K", "5.0", "an integer from 1 to 50"),
        ("TOP_K", "1_0", "an integer from 1 to 50"),
        ("TOP_K", "\u0665", "an integer from 1 to 50"),
        ("TOP_K", " ", "an integer from 1 to 50"),
        ("TOOLS_LIMIT", "101", "an integer from 1 to 100"),
        ("TOOL_NAME_LIMIT", "9", "an integer from 10 to 200"),
        ("PORT", "99999", "an integer from 0 to 65535"),
        ("PORT", "-1", "an integer from 0 to 65535"),
        ("START_PARALLEL", "65", "an integer from 1 to 64"),
        ("TRUNCATE_OUTPUT_LEN", "1", "0 (off) or an integer of at least 200"),
        ("TRUNCATE_OUTPUT_LEN", "199", "0 (off) or an integer of at least 200"),
        ("TRUNCATE_OUTPUT_LEN", "-1", "0 (off) or an integer of at least 200"),
        ("TRUNCATE_OUTPUT_LEN", "many", "0 (off) or an integer of at least 200"),
        ("TRANSPORT", "foo", "one of stdio, streamable-http, sse"),
        ("EMBEDDER", "BM26", "one of AUTO, BM25, HF, OPENAI, HYBRID"),
        ("ROUTING_TYPE", "STATIC", "one of CALL_TOOL, DYNAMIC, AUTO"),
        ("LOG_LEVEL", "LOUD", "one of DEBUG, INFO, WARNING, ERROR"),
        ("STRICT", "maybe", "true or false"),
        *(
            ("PROXY_TOOL", name, "letters, digits, _ and -, at most 64, without __ and not another tool's name")
            for name in ("mcp:proxy", "a__b", "retrieve_tools", "x" * 65, " ")
        ),
        ("CORS_ORIGINS", "*", "origins such as https://app.example, separated by commas"),
        ("CORS_ORIGINS", "https://*.example", "origins such as https://app.example, separated by commas"),
        ("CORS_ORIGINS", "https://app.example/", "origins such as https://app.example, separated by commas"),
        *(
            (
                "TRUSTED_PROXIES",
                text,
                "addresses and networks such as 10.0.0.5,10.1.0.0/16,fd00::/8, separated by commas",
            )
            for text in ("balancer", "10.0.0.5/16", "10.0.0.0/33", "10.0.0.5,::/0", "*")
        ),
        *(
            ("PERSON_QUOTA", text, "calls in a time such as 500/day (minute, hour, day)")
            for text in ("500", "0/day", "-1/day", "5/week", "1e3/day", "500/Day", "9999999999/day", " ")
        ),
        *(
            ("GROUP_QUOTAS", text, "groups with a quota each such as devs=5000/day,guests=20/hour")
            for text in ("devs", "devs=many", "=5/day", "devs=5/day,devs=6/day", "5/day")
        ),
        ("LIST_CHANGED_EXEC", "say 'hello", "a command line with balanced quotes"),
    ],
)
def test_a_wrong_value_is_named_with_its_variable_and_what_it_accepts(variable: str, value: str, expected: str) -> None:
    """One line: who is wrong, how, and what would be right."""
    assert complaint({f"MCPPROXY_{variable}": value}) == f"MCPPROXY_{variable} is {value!r}. Expected {expected}."


def test_all_wrong_values_are_reported_at_once_one_line_each() -> None:
    """Nobody repairs a configuration one start at a time."""
    lines = complaint({"MCPPROXY_TOP_K": "ten", "MCPPROXY_PORT": "http", "MCPPROXY_HOST": "ok"}).splitlines()
    assert [line.split()[0] for line in lines] == ["MCPPROXY_TOP_K", "MCPPROXY_PORT"]


def test_a_long_wrong_value_stays_on_one_short_line() -> None:
    """Newlines are escaped and the end is cut."""
    message = complaint({"MCPPROXY_TRANSPORT": "a\nb" * 1000})
    assert "\n" not in message
    assert len(message) < 200


def test_an_empty_variable_counts_as_unset() -> None:
    """Compose files and CI systems pass variables that are set to nothing."""
    assert load_settings({"MCPPROXY_TOP_K": "", "MCPPROXY_CONFIG_PATH": ""}) == load_settings({})


def test_zero_turns_truncation_off() -> None:
    """0 and unset mean the same, so only one of them is left."""
    assert load_settings({"MCPPROXY_TRUNCATE_OUTPUT_LEN": "0"}).truncate_output_len is None


def test_a_flag_beats_the_environment_and_an_absent_flag_does_not() -> None:
    """Flags over environment over defaults."""
    environ = {"MCPPROXY_TOP_K": "7", "MCPPROXY_PORT": "9000"}
    settings = load_settings(environ, top_k=9, port=None)
    assert (settings.top_k, settings.port) == (9, 9000)


def test_a_wrong_flag_is_named_as_a_flag() -> None:
    """The message names what the user wrote."""
    assert complaint({}, tools_limit=300) == "--tools-limit is 300. Expected an integer from 1 to 100."


def test_a_flag_that_is_no_setting_is_a_bug() -> None:
    """A misspelt override must not be ignored silently."""
    with pytest.raises(TypeError, match="topk"):
        load_settings({}, topk=3)


def test_the_home_directory_is_expanded_in_paths() -> None:
    """A path from a config file or an env file has not met a shell."""
    settings = load_settings({"MCPPROXY_DATA_DIR": "~/data", "MCPPROXY_LOG_FILE": "~/log"})
    assert (settings.data_dir, settings.log_file) == (Path.home() / "data", Path.home() / "log")


def test_settings_are_frozen_and_read_nothing_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `load_settings` looks at the environment."""
    monkeypatch.setenv("MCPPROXY_TOP_K", "9")
    assert Settings().top_k == 5
    assert load_settings().top_k == 9
    with pytest.raises(ValueError, match="frozen"):
        Settings().top_k = 3


def test_the_environment_is_handed_out_as_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read stays as it was read."""
    monkeypatch.setenv("SOME_NAME", "before")
    before = environment()
    monkeypatch.setenv("SOME_NAME", "after")
    assert before["SOME_NAME"] == "before"
    assert environment()["SOME_NAME"] == "after"


class TestSecrets:
    """The token and the inline config never appear in a message, a repr or a listing."""

    def test_a_wrong_token_is_not_repeated(self) -> None:
        """Not in the message, nor in the exception it would be chained to."""
        with pytest.raises(ConfigError) as caught:
            load_settings({"MCPPROXY_AUTH_TOKEN": "hunter2 with spaces"})
        assert "MCPPROXY_AUTH_TOKEN" in caught.value.message
        assert "hunter2" not in caught.value.message
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None

    def test_repr_hides_token_and_inline_config(self) -> None:
        """A log line with the settings gives nothing away."""
        settings = load_settings({"MCPPROXY_AUTH_TOKEN": "hunter2", "MCPPROXY_CONFIG_JSON": '{"a": "hunter2"}'})
        assert "hunter2" not in repr(settings)
        assert "hunter2" not in str(settings)

    def test_a_token_file_that_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        """The path and the reason are in the line."""
        path = tmp_path / "none"
        message = complaint({"MCPPROXY_AUTH_TOKEN_FILE": str(path)})
        assert message == (
            f"MCPPROXY_AUTH_TOKEN_FILE is '{path}'. Expected a file that holds the token: No such file or directory."
        )

    @pytest.mark.parametrize("content", [b"", b" \n", b"two words", "t\u00f6ken".encode(), b"\xff\xfe"])
    def test_a_token_file_without_one_token_is_refused(self, tmp_path: Path, content: bytes) -> None:
        """An empty secret must not open the gateway."""
        path = tmp_path / "token"
        path.write_bytes(content)
        assert complaint({"MCPPROXY_AUTH_TOKEN_FILE": str(path)}).startswith("MCPPROXY_AUTH_TOKEN_FILE is ")

    @pytest.mark.parametrize(
        "address",
        [
            "mysql://me:s3cret@host/db",
            "postgresql://me:s3cret@host:port/db",
            "postgresql://me:s3cret@host",
            "postgresql://me:pass@s3cret@host/db",
            "postgresql://me:pass@s3cret/s3cret@host/db",
            "POSTGRESQL://me:s3cret@host/db",
            "s3cret",
        ],
    )
    def test_an_address_that_is_no_database_is_refused_and_not_shown(self, tmp_path: Path, address: str) -> None:
        """It may hold a password, in the environment as in a file."""
        path = tmp_path / "address"
        path.write_text(address + "\n")
        for environ in ({"MCPPROXY_DATABASE_URL": address}, {"MCPPROXY_DATABASE_URL_FILE": str(path)}):
            message = complaint(environ)
            assert "postgresql://user:password@host:5432/database" in message
            assert "s3cret" not in message

    def test_the_address_of_a_database_may_stand_in_a_file(self, tmp_path: Path) -> None:
        """As a container's secret does; its repr gives nothing away."""
        path = tmp_path / "address"
        path.write_text("postgresql://me:s3cret@one:5432,two:5433/db?target_session_attrs=read-write\n")
        settings = load_settings({"MCPPROXY_DATABASE_URL_FILE": str(path)})
        assert settings.database_url is not None
        assert settings.database_url.get_secret_value() == path.read_text().strip()
        assert "s3cret" not in repr(settings)

    @pytest.mark.parametrize("name", SECRETS)
    @pytest.mark.parametrize("end", ["", "\n", "\r\n"])
    def test_the_content_of_a_secrets_file_is_the_secret(self, tmp_path: Path, name: str, end: str) -> None:
        """Without the line's end that an editor writes; its repr gives nothing away."""
        path = tmp_path / "secret"
        path.write_bytes(f"s3cret-of-thirty-two-characters-{name}{end}".encode())
        settings = load_settings({f"MCPPROXY_{name.upper()}_FILE": str(path)})
        assert getattr(settings, name).get_secret_value() == f"s3cret-of-thirty-two-characters-{name}"
        assert "s3cret" not in repr(settings)

    def test_every_secret_that_may_stand_in_a_file_is_tried(self) -> None:
        """Those, and the address of a database."""
        assert set(SECRET_FILES) == {*SECRETS, "database_url"}

    def test_token_and_token_file_together_are_refused(self, tmp_path: Path) -> None:
        """Neither is obviously meant."""
        message = complaint({"MCPPROXY_AUTH_TOKEN": "abc", "MCPPROXY_AUTH_TOKEN_FILE": str(tmp_path)})
        assert message == "MCPPROXY_AUTH_TOKEN and MCPPROXY_AUTH_TOKEN_FILE are both set. Keep one of them."

    def test_a_flag_settles_which_of_two_exclusive_settings_is_meant(self) -> None:
        """Flags win over the environment there as well."""
        environ = {"MCPPROXY_CONFIG_JSON": "{}"}
        settings = load_settings(environ, config_path="here.json")
        assert (settings.config_path, settings.config_json) == (Path("here.json"), None)
        shown = {o.setting.name: o.origin for o in origins(settings, environ, {"config_path"})}
        assert (shown["config_path"], shown["config_json"]) == ("flag", "default")


def test_every_setting_says_what_it_is_and_what_it_accepts() -> None:
    """The documentation is made of these sentences."""
    for setting in all_settings():
        assert setting.variable == f"MCPPROXY_{setting.name.upper()}"
        assert re.fullmatch(r"[A-Z].*\.", setting.help), setting
        assert setting.allowed, setting
    by_name = {setting.name: setting for setting in all_settings()}
    assert by_name["data_dir"].default == "~/.mcpproxy"
    assert by_name["top_k"].default == "5"
    assert by_name["config_path"].allowed == "a path"
    assert by_name["log_file"].default == ""


def test_origins_tell_value_and_source_and_hide_secrets(tmp_path: Path) -> None:
    """What `config show --origin` prints."""
    token_file = tmp_path / "token"
    token_file.write_text("hunter2")
    environ = {
        "MCPPROXY_EMBEDDER": "hf",
        "MCPPROXY_AUTH_TOKEN_FILE": str(token_file),
        "MCPPROXY_LIST_CHANGED_EXEC": "notify 'two words'",
        "MCPPROXY_STRICT": "",
    }
    listed = {o.setting.name: o for o in origins(load_settings(environ, top_k=3), environ, {"top_k"})}
    assert (listed["embedder"].value, listed["embedder"].origin) == ("HF", "environment")
    assert (listed["top_k"].value, listed["top_k"].origin) == ("3", "flag")
    assert (listed["strict"].value, listed["strict"].origin) == ("false", "default")
    assert (listed["auth_token"].value, listed["auth_token"].origin) == ("[set]", "environment")
    assert listed["list_changed_exec"].value == "notify 'two words'"
    assert (listed["config_json"].value, listed["config_json"].origin) == ("", "default")
    assert "hunter2" not in repr(listed)


def test_unknown_variables_are_named_with_the_likely_one_and_without_their_value() -> None:
    """A misspelt variable is not silently without effect."""
    environ = {
        "MCPPROXY_TOPK": "hunter2",
        "mcpproxy_port": "1",
        "MCPPROXY_ZZZ": "1",
        "MCPPROXY_TOP_K": "5",
        "HOME": "/",
    }
    assert unknown_variables(environ) == [
        "MCPPROXY_TOPK is not a setting. Did you mean MCPPROXY_TOP_K?",
        "MCPPROXY_ZZZ is not a setting. It has no effect.",
        "mcpproxy_port is not a setting. Did you mean MCPPROXY_PORT?",
    ]


@pytest.mark.parametrize("name", ["clean_results", "fence_results"])
def test_what_a_passed_through_server_is_spared_is_said_where_it_is_set(name: str) -> None:
    """`--passthrough` never cleans or fences."""
    (setting,) = [each for each in all_settings() if each.name == name]
    assert "--passthrough changes nothing" in setting.help
