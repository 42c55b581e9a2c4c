"""Placeholders are filled in at connect, in one pass; what is missing is named by server, field and variable."""

from pathlib import Path

import keyring
import msgspec
import pytest
from keyring.backends import fail

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.secrets import keyring_edge
from smart_mcp_proxy.servers import ServerConfig, UnsetVariableError, collect_secrets, expand

ENVIRON = {"A": "alpha", "B": "${A}", "EMPTY": "", "HOME": "/home/user", "TOKEN": "hunter2"}


def filled(text: str, workspace: Path = Path("/work space")) -> str:
    """`text` as an argument, expanded."""
    config = ServerConfig("s", "stdio", command="x", args=(text,))
    return expand(config, ENVIRON, keyring_get={"key": "stored"}.get, workspace=workspace).args[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", "alpha"),
        ("x${A}y${A}", "xalphayalpha"),
        ("${env:A}", "alpha"),
        ("${A:-d}", "alpha"),
        ("${NONE:-d}", "d"),
        ("${NONE:-}", ""),
        ("${EMPTY:-d}", "d"),
        ("${env:NONE:-a:-b c}", "a:-b c"),
        ("${env:NONE:-http://h/}", "http://h/"),
        ("${NONE:-a}b}", "ab}"),
        ("${B}", "${A}"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$A $$ %A% {A} $", "$A $$ %A% {A} $"),
        ("${userHome}/x", "/home/user/x"),
        ("${workspaceFolder}/x", "/work space/x"),
        ("${keyring:key}", "stored"),
    ],
)
def test_placeholders_are_filled_in_one_pass(text: str, expected: str) -> None:
    """Every form, the escape, and what is none of our business; a value is never looked at again."""
    assert filled(text) == expected


@pytest.mark.parametrize("text", ["${}", "${A${B}}", "${A", "${input:x}", "${file:}", "${1A}", "${A-d}", "${env:}"])
def test_a_placeholder_that_cannot_be_read_is_refused(text: str) -> None:
    """Never passed on as it is, never taken for empty."""
    with pytest.raises(ConfigError, match=r"Server 's' has a placeholder that cannot be read \(field args\[0\]\)."):
        filled(text)


def test_every_text_field_is_expanded_and_the_original_is_left_alone() -> None:
    """Command, args, env, cwd; url and headers."""
    stdio = ServerConfig("s", "stdio", command="${A}", args=("${A}",), env={"${A}": "${A}"}, cwd="${A}")
    expanded = expand(stdio, ENVIRON)
    assert (expanded.command, expanded.args, expanded.cwd) == ("alpha", ("alpha",), "alpha")
    assert expanded.env == {"${A}": "alpha"}  # names are names
    assert stdio.command == "${A}"
    remote = ServerConfig("s", "http", url="https://${A}/mcp", headers={"X": "Bearer ${TOKEN}"})
    expanded = expand(remote, ENVIRON)
    assert (expanded.url, expanded.headers) == ("https://alpha/mcp", {"X": "Bearer hunter2"})


@pytest.mark.parametrize("text", ["${GITHUB_TOKEN}", "${env:GITHUB_TOKEN}"])
def test_an_unset_variable_names_server_field_and_variable(text: str) -> None:
    """What the user has to do is in the message."""
    with pytest.raises(UnsetVariableError) as caught:
        expand(ServerConfig("github", "stdio", command="x", env={"TOKEN": text}), ENVIRON)
    error = caught.value
    assert error.message == "Server 'github' needs the environment variable GITHUB_TOKEN (field env.TOKEN)."
    assert (error.server, error.field, error.variable) == ("github", "env.TOKEN", "GITHUB_TOKEN")
    assert error.data == {"server": "github", "field": "env.TOKEN", "variable": "GITHUB_TOKEN"}


@pytest.mark.parametrize("reference", ["$KEY", "${KEY}"])
def test_a_variable_that_holds_a_reference_to_itself_counts_as_unset(reference: str) -> None:
    """A client whose entry names one that is not set passes the reference on."""
    with pytest.raises(UnsetVariableError, match="KEY"):
        expand(ServerConfig("s", "stdio", command="x", env={"K": "${KEY}"}), {"KEY": reference})


def test_a_variable_set_to_nothing_counts_as_unset() -> None:
    """An empty token would only fail later and further away."""
    with pytest.raises(UnsetVariableError, match="EMPTY"):
        filled("${EMPTY}")


class TestFiles:
    """`${file:path}`."""

    def test_a_file_gives_its_text_without_the_last_line_break(self, tmp_path: Path) -> None:
        """Absolute, or relative to the workspace."""
        (tmp_path / "token").write_text(" a b\n\n")
        assert filled(f"${{file:{tmp_path}/token}}") == " a b"
        assert filled("${file:token}", tmp_path) == " a b"

    def test_the_home_directory_may_be_written_short(self, tmp_path: Path) -> None:
        """By the same HOME that the other placeholders see."""
        (tmp_path / "token").write_text("x")
        config = ServerConfig("s", "stdio", command="${file:~/token}")
        assert expand(config, {"HOME": str(tmp_path)}).command == "x"

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        """It is something the surroundings do not provide, like a variable."""
        with pytest.raises(UnsetVariableError, match="cannot be read: No such file or directory") as caught:
            filled("${file:none}", tmp_path)
        assert caught.value.variable == "file:none"

    @pytest.mark.parametrize("content", [b"", b"\n", b"\xff", b"x" * 70_000])
    def test_a_file_without_a_usable_text_is_refused(self, tmp_path: Path, content: bytes) -> None:
        """Empty, binary, or a file given by mistake."""
        (tmp_path / "token").write_bytes(content)
        with pytest.raises(UnsetVariableError, match="needs text in the file"):
            filled("${file:token}", tmp_path)


class TestKeyring:
    """`${keyring:name}`."""

    def test_a_missing_entry_says_how_to_store_it(self) -> None:
        """With the command to type."""
        with pytest.raises(UnsetVariableError) as caught:
            filled("${keyring:none}")
        assert str(caught.value) == (
            "Server 's' needs the keyring entry 'none' (field args[0]). Store it: keyring set mcpproxy none"
        )
        assert caught.value.variable == "keyring:none"

    def test_a_keyring_that_does_not_answer_is_reported_for_that_server(self) -> None:
        """A container has none; the other servers still start."""
        before = keyring.get_keyring()
        keyring.set_keyring(fail.Keyring())  # type: ignore[no-untyped-call]  # the library's own
        try:
            with pytest.raises(ConfigError, match="The keyring cannot be asked: NoKeyringError"):
                keyring_edge.read_keyring_secret("x")
            with pytest.raises(UnsetVariableError, match="needs the keyring entry 'x'"):
                expand(ServerConfig("s", "stdio", command="${keyring:x}"), {})
        finally:
            keyring.set_keyring(before)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (ServerConfig("s", "http", url="${V}"), "not an http or https address"),
        (ServerConfig("s", "http", url="https://${V}@h/mcp"), "user name or password"),
        (ServerConfig("s", "http", url="${NONE:-}"), "not an http or https address"),
        (ServerConfig("s", "http", url="http://h", headers={"A": "${LINES}"}), "'headers.A' holds a control character"),
        (ServerConfig("s", "stdio", command="${NONE:-}"), "empty once filled in"),
    ],
)
def test_what_a_value_makes_of_a_field_is_checked_and_not_repeated(config: ServerConfig, words: str) -> None:
    """Injection of header lines, of credentials, of another scheme."""
    with pytest.raises(ConfigError, match=words) as caught:
        expand(config, {"V": "hunter2", "LINES": "hunter2\r\nX: y"})
    assert "hunter2" not in str(caught.value)


def test_a_nul_in_a_file_does_not_reach_a_program(tmp_path: Path) -> None:
    """The one way a NUL could still come in."""
    (tmp_path / "token").write_bytes(b"a\0b")
    with pytest.raises(ConfigError, match="NUL"):
        filled("${file:token}", tmp_path)


def test_secrets_are_what_was_put_in_and_all_of_env_and_headers() -> None:
    """Everything that no log may show, longest first, the bare credentials too."""
    config = ServerConfig(
        "s",
        "http",
        url="https://h/${A}",
        headers={"authorization": "Bearer ${TOKEN}", "X": "plain", "Y": ""},
        env={"Z": "fixed-value"},
    )
    expanded = expand(config, ENVIRON)
    assert collect_secrets(expanded) == ["Bearer hunter2", "fixed-value", "hunter2", "alpha", "plain"]
    assert "hunter2" not in repr(expanded)
    assert collect_secrets(msgspec.structs.replace(config, headers={}, env={})) == []


def test_places_are_no_secrets() -> None:
    """Home and workspace would blank out half of every log line."""
    config = ServerConfig("s", "stdio", command="${userHome}/${workspaceFolder}/${NONE:-default}")
    assert collect_secrets(expand(config, ENVIRON)) == []


def test_what_is_masked_in_arguments_and_address_is_a_secret_too() -> None:
    """Values of options, passwords in addresses, as they are written there and as they are meant."""
    program = ServerConfig(
        "s", "stdio", command="run", args=("--api-key", "option-1", "--token=word-22", "-v", "plain-33")
    )
    assert collect_secrets(program) == ["option-1", "word-22"]
    remote = ServerConfig("s", "http", url="https://user:pass%2Fword@example.com/mcp?key=query%2D1&page=second")
    assert {"pass/word", "pass%2Fword", "query-1", "query%2D1"} <= set(collect_secrets(remote))
    assert "second" not in collect_secrets(remote)
