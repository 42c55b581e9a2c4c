"""One entry of a server file, in the words of every client; what cannot be used is refused without its secrets."""

import json
from typing import Any

import pytest

from smart_mcp_proxy.servers import Problem, ServerConfig, ServerLimits, ServersDiff, diff, load_servers


def parsed(entry: dict[str, Any]) -> tuple[ServerConfig | None, tuple[Problem, ...]]:
    file = load_servers(json.dumps({"mcpServers": {"s": entry}}))
    return file.usable.get("s"), file.problems


def config_of(entry: dict[str, Any]) -> ServerConfig:
    config, problems = parsed(entry)
    assert config is not None, problems
    return config


def refusal(entry: dict[str, Any]) -> str:
    config, (problem,) = parsed(entry)
    assert config is None
    assert (problem.server, problem.severity) == ("s", "error")
    return str(problem)


def test_a_stdio_entry_keeps_everything_it_says() -> None:
    """Command, arguments, environment, directory; placeholders stay until the connect."""
    config = config_of({"command": "uvx", "args": ["x", "${A}"], "env": {"T": "${T}"}, "cwd": "/tmp", "type": "stdio"})
    assert (config.transport, config.command, config.args) == ("stdio", "uvx", ("x", "${A}"))
    assert (config.env, config.cwd, config.url) == ({"T": "${T}"}, "/tmp", "")
    assert (config.disabled, config.oauth, config.unknown) == (False, None, {})


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"url": "http://h/mcp"}, "http"),
        ({"url": "http://h/sse"}, "sse"),
        ({"url": "http://h/sse/"}, "sse"),
        ({"url": "http://h/sse?key=1"}, "sse"),
        ({"url": "http://h/assess"}, "http"),
        ({"url": "http://h/sse/mcp"}, "http"),
        ({"url": "${BASE}/sse"}, "sse"),
        ({"url": "http://h/sse", "type": "url"}, "sse"),
        ({"url": "http://h/mcp", "type": "url"}, "http"),
        ({"url": "http://h/sse", "type": "http"}, "http"),
        ({"url": "http://h/mcp", "type": "sse"}, "sse"),
        ({"url": "http://h/x", "type": "streamable-http"}, "http"),
        ({"url": "http://h/x", "type": "streamable_http"}, "http"),
        ({"url": "http://h/x", "type": "streamableHttp"}, "http"),
        ({"url": "http://h/x", "transport": "sse"}, "sse"),
        ({"url": "http://h/x", "type": None}, "http"),
        ({"serverUrl": "http://h/mcp"}, "http"),
        ({"httpUrl": "http://h/sse"}, "http"),
    ],
)
def test_the_transport_follows_type_and_else_the_address(entry: dict[str, Any], transport: str) -> None:
    """Contract: no type, last path segment /sse: SSE, else streamable HTTP."""
    config = config_of(entry)
    assert config.transport == transport
    assert config.url == next(value for key, value in entry.items() if key.lower().endswith("url"))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "has neither 'command' nor 'url'"),
        ({"comand": "x"}, "has neither 'command' nor 'url' (its unknown keys: comand)"),
        ({"command": "x", "url": "http://h"}, "has both 'command' and 'url'"),
        ({"url": "http://a", "serverUrl": "http://b"}, "has different url and serverUrl"),
        ({"command": "x", "type": "sse"}, "is of type 'sse' but has a 'command'"),
        ({"url": "http://h", "type": "stdio"}, "is of type 'stdio' but has a 'url'"),
        ({"url": "http://h", "type": "grpc"}, "Expected one of stdio, http, streamable-http, sse, url."),
        ({"url": "localhost:8000/mcp"}, "not an http or https address"),
        ({"url": "file:///etc/passwd"}, "not an http or https address"),
        ({"url": "http:///mcp"}, "not an http or https address"),
        ({"url": "/mcp"}, "not an http or https address"),
        ({"url": "http://h:99999/"}, "a url that cannot be read"),
        ({"url": "http://[::1/"}, "a url that cannot be read"),
        ({"url": "http://h/a b"}, "a space or a control character"),
        ({"command": ["npx", "x"]}, "'command' is a list. Expected text."),
        ({"command": "x", "args": "-y foo"}, "'args' is text. Expected a list of texts."),
        ({"command": "x", "args": [{}]}, "'args[0]' is an object. Expected text."),
        ({"command": "x", "env": []}, "'env' is a list. Expected an object."),
        ({"command": "x", "env": {"A": None}}, "'env.A' is null. Expected text."),
        ({"command": "x", "env": {"A": "a\0b"}}, "'env.A' holds a NUL character"),
        ({"command": "x\0y"}, "'command' holds a NUL character"),
        ({"command": "x", "args": ["\ud800"]}, "half a surrogate pair"),
        ({"command": "x", "env": {"A=B": "1"}}, "'A=B' under 'env' is not a variable's name"),
        ({"url": "http://h", "headers": {"A B": "1"}}, "'A B' is not a header name"),
        ({"url": "http://h", "headers": {"A": "1\r\nB: 2"}}, "'headers.A' holds a control character"),
        ({"command": "x", "disabled": "yes"}, "'disabled' is text. Expected true or false."),
        ({"command": "x", "timeout": True}, "'timeout' is a boolean. Expected an integer of at least 1."),
        ({"command": "x", "timeout": 0}, "'timeout' is 0. Expected an integer of at least 1."),
        ({"command": "x", "limits": {"call_s": -1}}, "'limits.call_s' is -1. Expected a number above 0."),
        ({"command": "x", "limits": {"in_flight": 0}}, "'limits.in_flight' is 0. Expected an integer of at least 1."),
        ({"command": "x", "oauth": "yes"}, "'oauth' is text. Expected true, false or an object."),
        ({"command": "x", "isolation": "jail"}, "'isolation' is 'jail'"),
        ({"command": "x", "isolation": 1}, "'isolation' is 1"),
        ({"command": "x", "isolation": {"extra_args": ["-v"]}}, "has keys that are not known: 'extra_args'"),
        ({"command": "x", "isolation": {"mode": "vm"}}, "'isolation.mode' is 'vm'"),
        ({"command": "x", "allow": {"reed": []}}, "'allow' has keys that are not known: 'reed'"),
        (
            {"command": "x", "allow": {"network": "yes"}},
            "'allow.network' is text. Expected true, false or a list of hosts.",
        ),
        ({"command": "x", "allow": {}, "isolation": {"allow": {}}}, "has 'allow' twice"),
        ({"command": "x", "proxy": True}, "Proxy is only supported for 'url' type MCP servers, got 'stdio'."),
        (
            {"url": "http://h", "authorization_token": "a", "headers": {"authorization": "b"}},
            "has both 'authorization_token' and an Authorization header",
        ),
    ],
)
def test_an_entry_that_cannot_be_used_says_why(entry: dict[str, Any], words: str) -> None:
    """Server, field, and what would be right."""
    message = refusal(entry)
    assert message.startswith("Server 's'")
    assert words in message


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "http://user:hunter2@h/mcp"},
        {"url": "http://hunter2@h/mcp"},
        {"url": "ftp://h/?key=hunter2"},
        {"url": "http://h/hunter2 x"},
        {"command": "x", "env": {"T": ["hunter2"]}},
        {"url": "http://h", "headers": {"T": "hunter2\n"}},
        {"url": "http://h", "authorization_token": {"t": "hunter2"}},
    ],
)
def test_a_refusal_never_repeats_a_secret(entry: dict[str, Any]) -> None:
    """Problems are shown, logged and sent to agents."""
    assert "hunter2" not in refusal(entry)


def test_credentials_in_a_url_are_refused_with_the_right_way() -> None:
    """They end up in logs of every proxy on the way."""
    assert "Put it into headers" in refusal({"url": "https://u:p@h/mcp"})


def test_numbers_and_booleans_are_written_out_for_programs() -> None:
    """Everybody writes a port without quotes."""
    config = config_of({"command": "x", "args": ["-p", 80], "env": {"A": 1, "B": True, "C": 1.5, "D": "a\nb"}})
    assert config.args == ("-p", "80")
    assert config.env == {"A": "1", "B": "true", "C": "1.5", "D": "a\nb"}


def test_unknown_keys_are_kept_and_named_with_the_likely_one() -> None:
    """Another client's keys do no harm, a misspelt one is found."""
    config, (problem,) = parsed({"command": "x", "disabld": True, "limits": {"calls": 1}})
    assert config is not None
    assert config.unknown == {"disabld": True, "limits.calls": 1}
    assert problem.severity == "warning"
    assert str(problem) == (
        "Server 's' has keys that are not known: 'disabld', 'limits.calls'. Did you mean 'disabled'?"
    )


def test_limits_have_defaults_and_timeout_is_the_call_limit() -> None:
    """`timeout` is in milliseconds, as clients write it."""
    assert config_of({"command": "x"}).limits == ServerLimits(init_s=300, list_s=30, call_s=300)
    assert config_of({"url": "http://a.example/mcp"}).limits == ServerLimits(init_s=20, list_s=30, call_s=300)
    assert config_of({"url": "http://a.example/sse"}).limits == ServerLimits(init_s=20, list_s=30, call_s=300)
    assert config_of({"command": "x"}).limits.longest_call_s == 3_600
    config = config_of({"command": "x", "timeout": 1500, "limits": {"call_s": 9, "init_s": 5, "queue": 0, "burst": 2}})
    assert config.timeout_ms == 1500
    assert config.limits == ServerLimits(burst=2, queue=0, init_s=5, call_s=1.5)


@pytest.mark.parametrize(
    ("entry", "init_s"),
    [
        ({"startup_timeout_sec": 45}, 45),
        ({"startup_timeout_ms": 1_500}, 1.5),
        ({"startup_timeout_sec": 45, "startup_timeout_ms": 1_500}, 45),
        ({"startup_timeout_sec": 45, "limits": {"init_s": 7}}, 7),
        ({"timeout": 120_000}, 300),
    ],
)
@pytest.mark.parametrize("way", [{"command": "x"}, {"url": "http://a.example/mcp"}])
def test_the_start_has_its_own_limit_in_the_words_of_other_clients_too(way, entry, init_s) -> None:
    """`timeout` is that of a call, and no part of it."""
    config, problems = parsed(way | entry)
    assert config is not None
    assert problems == ()
    assert config.limits.init_s == (20 if "url" in way and init_s == 300 else init_s)


@pytest.mark.parametrize("key", ["startup_timeout_sec", "startup_timeout_ms"])
@pytest.mark.parametrize("value", [0, -1, "45", True])
def test_a_limit_of_the_start_that_is_none_is_refused(key, value) -> None:
    assert f"'{key}' is" in refusal({"command": "x", key: value})


def test_the_longest_call_is_never_shorter_than_the_first_limit() -> None:
    assert config_of({"command": "x", "limits": {"call_s": 7_200}}).limits.longest_call_s == 7_200
    assert config_of({"command": "x", "limits": {"call_max_s": 90, "call_s": 60}}).limits.longest_call_s == 90


def test_a_timeout_that_looks_like_seconds_is_reported() -> None:
    """60 milliseconds is nobody's wish."""
    config, (problem,) = parsed({"command": "x", "timeout": 60})
    assert config is not None
    assert "60 milliseconds" in problem.message


@pytest.mark.parametrize(
    ("entry", "allowed", "denied"),
    [
        ({}, ["anything"], []),
        ({"tools": ["get_*"]}, ["get_x"], ["set_x", "GET_X"]),
        ({"tools": {"include": ["a*"], "exclude": ["ab"]}}, ["a", "ac"], ["ab", "b"]),
        ({"tools": {"exclude": ["del_*"]}}, ["get"], ["del_x"]),
        ({"tools": []}, [], ["x"]),
        ({"tool_configuration": {"enabled": False}}, [], ["x"]),
        ({"tool_configuration": {"enabled": True}}, ["x"], []),
        ({"tool_configuration": {"allowed_tools": ["a*[b]"]}}, ["a*[b]"], ["axb", "ab"]),
    ],
)
def test_tool_filters_are_globs(entry: dict[str, Any], allowed: list[str], denied: list[str]) -> None:
    """A list means include; exclusion wins; the key of the Anthropic API names exact tools."""
    tools = config_of({"command": "x", **entry}).tools
    assert all(tools.allows(name) for name in allowed)
    assert not any(tools.allows(name) for name in denied)


def test_an_authorization_token_becomes_a_header() -> None:
    """Seed 4's way to write it; null is none."""
    entry = {"type": "url", "url": "https://h/mcp", "proxy": True}
    config = config_of({**entry, "authorization_token": "abc"})
    assert config.headers == {"Authorization": "Bearer abc"}
    assert config.proxy
    assert config_of({**entry, "authorization_token": None}).headers == {}


def test_oauth_disabled_enabled_pin_and_harmless_isolation_are_understood() -> None:
    """The remaining keys."""
    config = config_of({"url": "http://h", "oauth": True, "enabled": False, "pin": ["a"], "isolation": None})
    assert (config.oauth, config.disabled, config.pin) == ({}, True, ("a",))
    config = config_of({"url": "http://h", "oauth": {"scopes": ["x"]}, "disabled": False})
    assert (config.oauth, config.disabled) == ({"scopes": ["x"]}, False)
    assert config_of({"url": "http://h", "oauth": False, "isolation": {"enabled": False}}).oauth is None


def test_the_repr_shows_no_secret() -> None:
    """A configuration in a log line gives nothing away."""
    config = config_of(
        {"url": "https://h/?k=hunter2", "headers": {"A": "hunter2"}, "env": {"A": "hunter2"}, "oauth": {"s": "hunter2"}}
    )
    assert "hunter2" not in repr(config)
    assert "name='s'" in repr(config)


def test_the_raw_entry_is_kept_as_written() -> None:
    """For showing and patching it."""
    entry = {"command": "x", "other": [1], "env": {"A": 1}}
    assert config_of(entry).raw == entry


def test_a_difference_names_what_came_went_and_changed() -> None:
    """Only what really changed is restarted: an unknown key or the order of keys is no change."""
    same = {"command": "x", "env": {"A": "1", "B": "2"}}
    old = load_servers(json.dumps({"mcpServers": {"same": same, "gone": same, "other": same}})).servers
    new = load_servers(
        json.dumps(
            {
                "mcpServers": {
                    "new": same,
                    "same": {"env": {"B": "2", "A": "1"}, "command": "x", "note": "hello"},
                    "other": {**same, "env": {"A": "1"}},
                }
            }
        )
    ).servers
    assert diff(old, new) == ServersDiff(added=("new",), removed=("gone",), changed=("other",))
    assert not diff(old, old)


@pytest.mark.parametrize(
    ("written", "trust"), [({}, None), ({"trust": "manual"}, "manual"), ({"trust": "Scan"}, "scan")]
)
def test_an_entry_says_who_approves_what_it_lists(written: dict[str, Any], trust: str | None) -> None:
    """In any case of letters; without a word the setting decides."""
    config, problems = parsed({"command": "x", **written})
    assert config is not None
    assert (config.trust, config.quarantined, problems) == (trust, False, ())


def test_an_entry_in_quarantine_is_another_one_than_without() -> None:
    """So putting it there stops the server, and lifting it starts it."""
    quarantined = config_of({"command": "x", "quarantined": True})
    assert quarantined.quarantined
    assert quarantined != config_of({"command": "x"})


def test_a_server_may_ask_for_input_where_its_entry_says_so() -> None:
    """And nowhere else; a typo allows nothing."""
    written: list[dict[str, Any]] = [{}, {"input_requests": True}, {"input_requests": False}]
    allowed = [config_of({"command": "x", **each}).input_requests for each in written]
    assert allowed == [False, True, False]
    assert refusal({"command": "x", "input_requests": "yes"}) == (
        "Server 's': 'input_requests' is text. Expected true or false."
    )


def test_a_trust_that_does_not_exist_is_refused() -> None:
    """A typo must not mean more trust than was asked for."""
    assert refusal({"command": "x", "trust": "truster"}) == (
        "Server 's': 'trust' is 'truster'. Expected one of manual, scan, trusted."
    )
    assert "'quarantined' is text" in refusal({"command": "x", "quarantined": "no"})


@pytest.mark.parametrize(
    ("written", "connection"),
    [({}, "shared"), ({"connection": "shared"}, "shared"), ({"connection": "per_client"}, "per_client")],
)
def test_an_entry_says_who_uses_its_connection(written: dict[str, Any], connection: str) -> None:
    """All clients, unless it says otherwise."""
    assert config_of({"command": "x", **written}).connection == connection


def test_connections_of_clients_are_limited_in_number_and_idle_time() -> None:
    """Both under the limits of the entry."""
    limits = config_of({"command": "x", "limits": {"client_connections": 2, "client_idle_s": 7}}).limits
    assert (limits.client_connections, limits.client_idle_s) == (2, 7.0)


def test_a_connection_that_cannot_be_is_refused() -> None:
    """An unknown word, and the transport on which no client can be asked."""
    assert refusal({"command": "x", "connection": "mine"}) == (
        "Server 's': 'connection' is 'mine'. Expected one of shared, per_client."
    )
    assert "not available over SSE" in refusal({"url": "http://localhost/sse", "connection": "per_client"})
