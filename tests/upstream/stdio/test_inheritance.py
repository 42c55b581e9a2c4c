"""Which of the gateway's variables a server's process gets, without whose passwords, and what is said of the rest."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.servers import ServerConfig, collect_secrets, expand, load_servers, warnings_about, with_inherited
from smart_mcp_proxy.servers.config import Allowance, Isolation
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.stdio.inheritance import child_environment, network_hint, select_inherited
from smart_mcp_proxy.upstream.stdio.stdio import open_stdio

OURS = {
    "PATH": "/bin", "HOME": "/home/u", "LC_ALL": "C.UTF-8", "TZ": "Europe/Berlin", "XDG_CACHE_HOME": "/c",
    "NVM_DIR": "/n", "SSL_CERT_FILE": "/ca.pem", "SSL_CERT_DIR": "/cas", "REQUESTS_CA_BUNDLE": "/ca.pem",
    "CURL_CA_BUNDLE": "/ca.pem", "NODE_EXTRA_CA_CERTS": "/ca.pem", "NO_PROXY": "localhost,.corp", "no_proxy": "*",
    "HTTP_PROXY": "http://proxy:3128", "https_proxy": "http://proxy:3128", "ALL_PROXY": "socks5h://proxy:1080",
    "UV_CACHE_DIR": "/u", "UV_OFFLINE": "1", "UV_PYTHON": "3.12", "UV_NATIVE_TLS": "true",
    "UV_DEFAULT_INDEX": "https://pkgs.corp/simple", "PIP_INDEX_URL": "https://pkgs.corp/simple", "PIP_CERT": "/ca.pem",
    "NPM_CONFIG_REGISTRY": "https://npm.corp/", "npm_config_cafile": "/ca.pem", "npm_config_offline": "true",
}  # fmt: skip
NOT_OURS = {
    "OPENAI_API_KEY": "k", "AWS_SECRET_ACCESS_KEY": "k", "MCPPROXY_AUTH_TOKEN": "k", "NODE_OPTIONS": "--require x",
    "LD_PRELOAD": "x", "PYTHONPATH": "x", "UV_PUBLISH_TOKEN": "k", "UV_INDEX_CORP_PASSWORD": "k",
    "npm_config_//npm.corp/:_authToken": "k", "NPM_TOKEN": "k", "PIP_CONFIG_FILE": "x", "GIT_SSH_COMMAND": "x",
}  # fmt: skip


def test_what_package_runners_need_is_passed_on_and_nothing_else() -> None:
    """Also not what looks alike."""
    assert select_inherited(OURS | NOT_OURS) == (OURS, ())
    own = {"TZ": "UTC", "MINE": "1"}
    assert child_environment(OURS | NOT_OURS, own) == OURS | own | {"PYTHONHASHSEED": "0"}


@pytest.mark.parametrize(
    "text",
    [
        "','.join({'summary', 'status', 'assignee', 'labels'})",
        "str({'summary', 'status', 'assignee', 'labels'})",
        "str([*frozenset(b'summary status assignee labels'.split())])",
        "str(hash('summary'))",
    ],
)
def test_a_python_server_starts_with_one_order_of_its_sets(text: str) -> None:
    """Also below a program that starts it."""
    python = [sys.executable, "-c", f"print({text})"]
    commands = [python, ["sh", "-c", '"$@"', "sh", *python], python]
    env = child_environment({**os.environ, "PYTHONHASHSEED": "random"}, {})
    assert len({subprocess.run(command, env=env, capture_output=True, check=True).stdout for command in commands}) == 1


@pytest.mark.parametrize("seed", ["7", "random", ""])
def test_an_entry_sets_its_own_hash_seed(seed: str) -> None:
    assert child_environment({}, {"PYTHONHASHSEED": seed}) == {"PYTHONHASHSEED": seed}


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        ("HTTPS_PROXY", "http://ann:se/cr@t@proxy:3128", None),
        ("HTTPS_PROXY", "http://ann:s%40cret@proxy:3128/", "http://proxy:3128/"),
        ("HTTPS_PROXY", "http://ann:s@cret@proxy:3128", "http://proxy:3128"),
        ("https_proxy", "ann:secret@proxy:3128", "proxy:3128"),
        ("ALL_PROXY", "socks5://ann:secret@[::1]:1080", "socks5://[::1]:1080"),
        ("UV_INDEX", "corp=https://ann:secret@a/simple https://b/", "corp=https://a/simple https://b/"),
        ("PIP_EXTRA_INDEX_URL", "https://secret@a/x\n https://u:secret@b/y", "https://a/x https://b/y"),
        ("PIP_INDEX_URL", "https://a/simple/?token=secret", None),
        ("PIP_INDEX_URL", "https://a/secret@b/", None),
        ("npm_config_https_proxy", "http://ann:secret@proxy", "http://proxy"),
        ("NPM_CONFIG_REGISTRY", "https://ann:secret@npm.corp/", "https://npm.corp/"),
        ("PIP_PROXY", "https://u:p,https://u:secret@b", None),
        ("HTTP_PROXY", "", ""),
        ("HTTPS_PROXY", "http://ann:1 secret@proxy", None),
        ("PIP_FIND_LINKS", "/srv/wheels", "/srv/wheels"),
        ("UV_INDEX", " https://a/  https://b/\n", " https://a/  https://b/\n"),
    ],
)
def test_users_and_passwords_are_cut_out_of_every_address(name: str, value: str, left: str | None) -> None:
    """What cannot be cut for sure is not passed on at all."""
    passed = select_inherited({name: value})
    assert passed.variables == ({} if left is None else {name: left})
    assert passed.cut == ((name,) if left != value else ())


@given(
    st.text(st.sampled_from("aB1:@/%?#,;\\="), max_size=30),
    st.sampled_from(["http://", "https://", "socks5://", "", "x=https://"]),
)
def test_no_password_survives_whatever_it_holds(noise: str, scheme: str) -> None:
    """A marker in the place of user and password is never in what is left."""
    value = f"{scheme}user:{noise}SECRET{noise}@host:1/simple"
    for name in ("HTTPS_PROXY", "UV_INDEX", "npm_config_registry"):
        assert "SECRET" not in select_inherited({name: value}).variables.get(name, "")


def test_named_variables_are_passed_on_as_they_are() -> None:
    """By the entry, and by the setting for all; what is not set is left out, and the values are kept out of logs."""
    entry = {"command": "x", "inherit": ["NPM_TOKEN", "HTTPS_PROXY", "NOT_SET"], "env": {"NPM_TOKEN": "mine"}}
    loaded = load_servers(json.dumps({"mcpServers": {"s": entry}}))
    assert not loaded.problems
    environ = {"NPM_TOKEN": "k", "HTTPS_PROXY": "http://ann:secret@proxy", "EXTRA": "e"}
    (config,) = with_inherited(loaded.servers, ("EXTRA",)).values()
    expanded = expand(config, environ)
    assert child_environment(environ, expanded.env) == {
        "NPM_TOKEN": "mine", "HTTPS_PROXY": "http://ann:secret@proxy", "EXTRA": "e", "PYTHONHASHSEED": "0",
    }  # fmt: skip
    assert "http://ann:secret@proxy" in collect_secrets(expanded)


@pytest.mark.parametrize("wrong", ["NAME", {"A": "B"}])
def test_a_wrong_inherit_is_refused(wrong: Any) -> None:
    loaded = load_servers(json.dumps({"mcpServers": {"s": {"command": "x", "inherit": wrong}}}))
    assert not loaded.usable and "inherit" in str(loaded.problems[0])


def test_who_approves_a_server_sees_what_it_would_inherit() -> None:
    """Like every other reference to what is the user's."""
    entry = {"command": "x", "inherit": ["AWS_SECRET_ACCESS_KEY", "NODE_OPTIONS"], "quarantined": True}
    warnings = warnings_about(entry)
    assert any("AWS_SECRET_ACCESS_KEY" in one and "program 'x'" in one for one in warnings)
    assert any("NODE_OPTIONS can make the program load" in one for one in warnings)


@pytest.mark.parametrize(
    "said",
    [
        "error: invalid peer certificate: UnknownIssuer. Consider --system-certs",
        "npm error code SELF_SIGNED_CERT_IN_CHAIN",
        "npm error network request to https://npm.corp failed, reason: getaddrinfo ENOTFOUND npm.corp",
        "407 Proxy Authentication Required",
        "error: Failed to fetch: `https://pkgs.corp/simple/x/`: 401 Unauthorized",
    ],
)
def test_what_was_kept_from_a_server_that_dies_over_the_network_is_named(said: str) -> None:
    """Names, never values."""
    environ = OURS | NOT_OURS | {"HTTPS_PROXY": "http://ann:secret@proxy:3128"}
    config = ServerConfig("s", "stdio", command="uvx", env={"UV_PUBLISH_TOKEN": "x"}, inherit=("NPM_TOKEN",))
    hint = network_hint(environ, config, said)
    assert "HTTPS_PROXY without user and password" in hint
    assert "UV_INDEX_CORP_PASSWORD" in hint and '"inherit": ["HTTPS_PROXY"' in hint
    assert "UV_PUBLISH_TOKEN" not in hint and "secret" not in hint and "MCPPROXY" not in hint


def test_nothing_is_said_where_nothing_was_kept_or_it_was_not_the_network() -> None:
    config = ServerConfig("s", "stdio", command="uvx")
    assert network_hint(OURS, config, "certificate") == ""
    assert network_hint({"HTTPS_PROXY": "http://a:b@c"}, config, "KeyError: 'x'") == ""
    assert network_hint({"HTTPS_PROXY": "http://a:b@c"}, ServerConfig("s", "http", url="http://x"), "ssl") == ""


def test_nothing_is_said_to_a_server_whose_network_is_closed() -> None:
    """No variable would open it; without a sandbox nothing closes it."""
    closed, said = Allowance(network=False), "getaddrinfo EAI_AGAIN"
    config = ServerConfig("s", "stdio", command="uvx", isolation=Isolation("sandbox", allow=closed))
    assert network_hint({"HTTPS_PROXY": "http://a:b@c"}, config, said) == ""
    free = replace(config, isolation=Isolation("none", allow=closed))
    assert "without user and password" in network_hint({"HTTPS_PROXY": "http://a:b@c"}, free, said)


@pytest.mark.parametrize(
    "said",
    [
        "ModuleNotFoundError: No module named 'module_that_is_not_there'",
        "Error: Cannot find module '/app/network/index.js'",
        "ImportError: cannot import name 'proxy' from 'certificate'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/etc/ssl/acme.cert'",
        "usage: prog --proxy URL",
        "the index is empty",
        "may reach listed hosts alone (allow.network), and bubblewrap, which keeps to them, is not installed.",
        "is to run in a container, and no engine works here: docker says: Cannot connect to the network",
    ],
)
def test_a_name_that_sounds_of_the_network_is_none(said: str) -> None:
    """A module that is missing needs no certificates."""
    config = ServerConfig("s", "stdio", command="uvx")
    assert network_hint({"HTTPS_PROXY": "http://a:b@c"}, config, f"Server 's' ended. It wrote: {said}") == ""


@pytest.mark.anyio
async def test_a_process_really_gets_them(tmp_path: Path) -> None:
    """From the pipe to the other side."""
    seen = tmp_path / "environment"
    code = f"import os, json; json.dump(dict(os.environ), open({str(seen)!r}, 'w'))"
    config = ServerConfig("s", "stdio", command=sys.executable, args=("-S", "-E", "-c", code))
    environ = {**OURS, **NOT_OURS, "PATH": os.environ["PATH"], "HTTPS_PROXY": "http://ann:secret@proxy:3128"}
    with pytest.raises(UpstreamError):
        await open_stdio(
            SessionOptions(config, lambda event: None, "handshake", environ=environ, max_message_bytes=1000)
        )
    got = json.loads(seen.read_text())
    assert got["HTTPS_PROXY"] == "http://proxy:3128" and got["NPM_CONFIG_REGISTRY"] == "https://npm.corp/"
    assert NOT_OURS.keys().isdisjoint(got)
