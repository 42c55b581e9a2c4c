"""A server file is read in every shape that clients write; a bad file is named, a bad entry never hides the others."""

import codecs
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers import Profile, ServerFile, find_config, load, load_configured_servers, load_servers
from smart_mcp_proxy.settings import load_settings

GOOD = {"command": "serve"}


def loaded(document: object) -> ServerFile:
    return load_servers(json.dumps(document))


def refused(text: str | Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_servers(text)
    return str(caught.value)


@pytest.mark.parametrize(
    "document",
    [
        {"mcpServers": {"a": GOOD, "b": {"url": "http://localhost/mcp"}}},
        {"servers": {"a": GOOD, "b": {"url": "http://localhost/mcp"}}},
        {"mcpServers": [{"name": "a", **GOOD}, {"name": "b", "url": "http://localhost/mcp"}]},
        [{"name": "a", **GOOD}, {"name": "b", "url": "http://localhost/mcp"}],
        {"a": GOOD, "b": {"url": "http://localhost/mcp"}},
        {
            "$schema": "https://example.org/schema",
            "mcpServers": {"a": GOOD, "b": {"serverUrl": "http://localhost/mcp"}},
        },
    ],
)
def test_every_shape_of_the_field_is_understood(document: object) -> None:
    """Cursor, VS Code, lists, and a bare map of servers all name the same two servers."""
    file = loaded(document)
    assert list(file.servers) == ["a", "b"]
    assert (file.servers["a"].transport, file.servers["b"].transport) == ("stdio", "http")
    assert file.problems == ()
    assert file.source == "MCPPROXY_CONFIG_JSON"


def test_a_server_may_be_called_servers() -> None:
    """A bare map is told from a section by what is in it."""
    assert list(loaded({"servers": GOOD}).servers) == ["servers"]


def test_comments_trailing_commas_and_a_byte_order_mark_are_accepted(tmp_path: Path) -> None:
    """What editors leave in such files does not matter, and text in quotes is not touched."""
    path = tmp_path / "mcp_config.json"
    text = """{ // the list
      "mcpServers": { /* two
        lines */ "a": {"command": "x", "args": ["http://h/ /*no*/", "a,}", "q\\"//",],},
      },
    }"""
    path.write_bytes(codecs.BOM_UTF8 + text.encode())
    file = load_servers(path)
    assert file.servers["a"].args == ("http://h/ /*no*/", "a,}", 'q"//')
    assert file.source == str(path)
    assert file.problems == ()


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
@pytest.mark.long  # many generated examples
def test_comments_and_commas_never_change_what_is_meant(value: object) -> None:
    """Whatever the texts hold, a commented file means what the plain one means."""
    plain = json.dumps({"mcpServers": {"a": {"command": "a", "x": value}}}, ensure_ascii=False)
    commented = "// c\n" + plain[:-1] + ", /* , } */ } // }"
    assert load_servers(commented).servers["a"].unknown == load_servers(plain).servers["a"].unknown


class TestWholeFile:
    """What cannot be read as a whole is refused, with file and place."""

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        """The path and the reason."""
        path = tmp_path / "none.json"
        assert refused(path).startswith(f"{path} cannot be read: No such file or directory.")

    def test_a_directory_is_named(self, tmp_path: Path) -> None:
        """Mounting a directory in place of the file is a classic."""
        assert refused(tmp_path).startswith(f"{tmp_path} cannot be read: Is a directory.")

    def test_an_unreadable_file_is_named(self, tmp_path: Path) -> None:
        """A link that leads nowhere stands for everything the system refuses to open, even to root."""
        path = tmp_path / "loop.json"
        path.symlink_to(path)
        assert refused(path).startswith(f"{path} cannot be read: Too many levels of symbolic links.")

    def test_a_permission_is_named(self, tmp_path: Path) -> None:
        """Root may read everything, so this needs another user."""
        path = tmp_path / "secret.json"
        path.write_text("{}")
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("this user may read everything")
        assert refused(path).startswith(f"{path} cannot be read: Permission denied.")

    @pytest.mark.parametrize("text", ["", "  \n", "// nothing yet\n"])
    def test_an_empty_file_says_what_to_write(self, text: str) -> None:
        """A first file is often created by touch."""
        assert refused(text) == 'MCPPROXY_CONFIG_JSON is empty. Write at least: {"mcpServers": {}}'

    @pytest.mark.parametrize("text", ["null", "5", '"text"', "true"])
    def test_a_value_that_is_no_object_is_refused(self, text: str) -> None:
        """JSON, but no configuration."""
        assert "is not a JSON object" in refused(text)

    @pytest.mark.parametrize("text", ['{"mcpServers": null}', '{"mcpServers": "x"}', '{"servers": 5}'])
    def test_a_section_that_holds_no_servers_is_refused(self, text: str) -> None:
        """Silence would look like an empty list."""
        assert "is neither an object nor a list" in refused(text)

    def test_a_syntax_error_names_line_and_column_behind_comments(self, tmp_path: Path) -> None:
        """The place is the one in the user's editor."""
        path = tmp_path / "c.json"
        path.write_text('{\n  /* two\n  lines */ "mcpServers": {\n    "a" "b"\n')
        assert refused(path).startswith(f"{path}, line 4, column 9: Expecting ':' delimiter.")

    @pytest.mark.parametrize("text", ["{", '{"a": "b', "{,}x", '{"a": 1,, "b": 2}', "/* open", '{"a": NaN}'])
    def test_broken_json_is_refused(self, text: str) -> None:
        """Leniency ends at comments and trailing commas."""
        assert refused(text).startswith("MCPPROXY_CONFIG_JSON")

    def test_a_message_never_repeats_the_content(self) -> None:
        """The file may hold tokens."""
        assert "hunter2" not in refused('{"mcpServers": {"a": {"env": {"T": "hunter2" "x"')

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
    def test_utf_16_is_named_as_such(self, tmp_path: Path, encoding: str) -> None:
        """Some editors save so."""
        path = tmp_path / "c.json"
        path.write_bytes('{"mcpServers": {}}'.encode(encoding))
        assert "is UTF-16 text" in refused(path)
        assert "Save it as UTF-8." in refused(path)

    def test_another_encoding_is_named_with_its_place(self, tmp_path: Path) -> None:
        """The first byte that does not fit."""
        path = tmp_path / "c.json"
        path.write_bytes(b'{\n "a": "\xe4"}')
        assert f"{path}, line 2, column 8: the text is not UTF-8." in refused(path)

    def test_a_huge_file_is_refused_unparsed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A log given by mistake does not fill the memory."""
        monkeypatch.setattr(load, "FILE_LIMIT_BYTES", 10)
        path = tmp_path / "c.json"
        path.write_bytes(b" " * 11)
        assert "is larger than 10 bytes" in refused(path)

    def test_deep_nesting_is_refused(self) -> None:
        """No traceback of a hundred thousand frames."""
        assert "nested too deeply" in refused("[" * 200_000)


class TestProblems:
    """What is odd is said, and what is usable is used."""

    def test_one_bad_entry_never_hides_the_others(self) -> None:
        """Each entry is read on its own."""
        file = loaded(
            {"mcpServers": {"a": GOOD, "bad": {"command": 5}, "worse": "x", "c:d": GOOD, "": GOOD, "z": GOOD}}
        )
        assert list(file.usable) == ["a", "z"]
        assert list(file.servers) == ["a", "bad", "worse", "c:d", "''", "z"]
        refusals = [file.servers[name].refusal for name in ("bad", "worse", "c:d")]
        assert refusals == [(problem.message, problem.hint) for problem in file.problems[:3]]
        assert all(config.is_off != (config.refusal is None) for config in file.servers.values())
        assert [(p.server, p.severity) for p in file.problems] == [
            ("bad", "error"),
            ("worse", "error"),
            ("c:d", "error"),
            ("''", "error"),
        ]

    def test_a_colon_in_a_name_is_explained(self) -> None:
        """It separates server and tool."""
        (problem,) = loaded({"mcpServers": {"c:d": GOOD}}).problems
        assert str(problem) == "Server 'c:d' has a colon in its name, which separates server and tool. Rename it."

    @pytest.mark.parametrize("name", ["two words", "日本語", "__proto__", "a.b/c", "O'Brien"])
    def test_unusual_names_are_legal(self, name: str) -> None:
        """Names are for people."""
        assert list(loaded({"mcpServers": {name: GOOD}}).servers) == [name]

    @pytest.mark.parametrize("name", [" ", "a\nb", "a\x00b", "a\u202eb", "\ud800"])
    def test_invisible_names_are_refused(self, name: str) -> None:
        """They would break log lines and deceive readers; their rows spell them out."""
        file = loaded({"mcpServers": {name: GOOD}})
        (row,) = file.servers
        assert (file.usable, row.isprintable(), row) == ({}, True, repr(name) if name == " " else repr(name)[1:-1])
        assert "invisible characters" in file.problems[0].message
        assert "\n" not in file.problems[0].message

    def test_a_server_defined_twice_is_reported_and_the_last_counts(self) -> None:
        """Silent loss of an entry is hard to find."""
        file = load_servers('{"mcpServers": {"a": {"command": "one"}, "b": {"command": "x"}, "a": {"command": "two"}}}')
        assert file.servers["a"].command == "two"
        assert [p.message for p in file.problems] == [
            "Server 'a' is defined more than once; the last definition counts."
        ]

    def test_a_name_twice_in_a_list_is_reported(self) -> None:
        """Lists have no keys to be unique."""
        file = loaded([{"name": "a", "command": "one"}, {"name": "a", "command": "two"}, {"command": "x"}, 7])
        assert file.servers["a"].command == "two"
        assert [p.message for p in file.problems] == [
            "Entry 3 of the list in MCPPROXY_CONFIG_JSON has no name.",
            "Entry 4 of the list in MCPPROXY_CONFIG_JSON has no name.",
            "Server 'a' is defined more than once; the last definition counts.",
        ]

    def test_a_repeated_key_of_an_entry_is_reported(self) -> None:
        """Two env objects, for example."""
        file = load_servers('{"mcpServers": {"a": {"command": "x", "env": {}, "env": {"A": "1"}}}}')
        assert file.servers["a"].env == {"A": "1"}
        assert file.problems[0].message == "The key 'env' is repeated in server 'a'; the last one counts."

    def test_names_that_differ_in_case_only_are_kept_and_reported(self) -> None:
        """Legal, and a trap for agents."""
        file = loaded({"mcpServers": {"GitHub": GOOD, "github": GOOD}})
        assert list(file.servers) == ["GitHub", "github"]
        assert file.problems[0].message == "Servers 'GitHub' and 'github' differ only in upper and lower case."

    @pytest.mark.parametrize("document", [{}, [], {"mcpServers": {}}, {"theme": "dark"}])
    def test_no_servers_is_a_hint_not_an_error(self, document: object) -> None:
        """A gateway without servers starts and says how to add one."""
        file = loaded(document)
        assert file.servers == {}
        assert file.problems[-1].message == "MCPPROXY_CONFIG_JSON names no servers."
        assert '"mcpServers"' in file.problems[-1].hint

    def test_top_level_keys_without_effect_are_named(self) -> None:
        """A misspelt section is not silently empty, and a second section is not silently ignored."""
        assert "'mcpservers'" in loaded({"mcpservers": {"a": GOOD}, "x": 1}).problems[0].message
        file = loaded({"mcpServers": {"a": GOOD}, "servers": {"b": GOOD}})
        assert list(file.servers) == ["a"]
        assert "'servers'" in file.problems[0].message

    def test_profiles_are_read_beside_the_servers(self) -> None:
        """One that cannot be used is a problem of the file, not of a server."""
        profiles: dict[str, Any] = {"work": {"servers": ["a"], "tools": ["*"]}, "bad": {"x": 1}}
        file = loaded({"mcpServers": {"a": GOOD}, "profiles": profiles})
        assert file.profiles == {"work": Profile("work", ("a",), ("*",))}
        assert "Profile 'bad'" in file.problems[0].message
        assert "'profiles' is not an object" in loaded({"mcpServers": {"a": GOOD}, "profiles": 5}).problems[0].message


class TestFinding:
    """Which file is read."""

    def test_the_configured_file_wins_and_must_exist(self, tmp_path: Path) -> None:
        """A path that was given is meant."""
        (tmp_path / "mcp_config.json").write_text("{}")
        (tmp_path / "mine.json").write_text("{}")
        assert find_config(load_settings({}, config_path="mine.json"), tmp_path) == tmp_path / "mine.json"
        with pytest.raises(ConfigError, match=r"MCPPROXY_CONFIG_PATH is 'none.json'. There is no such file."):
            find_config(load_settings({"MCPPROXY_CONFIG_PATH": "none.json"}), tmp_path)

    def test_the_working_directory_comes_before_the_data_directory(self, tmp_path: Path) -> None:
        """A project's own list wins over the user's."""
        here, data = tmp_path / "here", tmp_path / "data"
        here.mkdir()
        data.mkdir()
        settings = load_settings({}, data_dir=data)
        assert find_config(settings, here) is None
        (data / "mcp_config.json").write_text("{}")
        assert find_config(settings, here) == data / "mcp_config.json"
        (here / "mcp_config.json").write_text("{}")
        assert find_config(settings, here) == here / "mcp_config.json"

    def test_servers_come_inline_or_from_the_file_or_not_at_all(self, tmp_path: Path) -> None:
        """The three ways to start."""
        nothing = load_configured_servers(load_settings({}, data_dir=tmp_path / "none"), tmp_path)
        assert (dict(nothing.servers), nothing.source) == ({}, "")
        assert str(tmp_path / "mcp_config.json") in nothing.problems[0].message
        (tmp_path / "mcp_config.json").write_text(json.dumps({"mcpServers": {"file": GOOD}}))
        assert list(load_configured_servers(load_settings({}), tmp_path).servers) == ["file"]
        inline = load_settings({"MCPPROXY_CONFIG_JSON": json.dumps({"mcpServers": {"inline": GOOD}})})
        assert list(load_configured_servers(inline, tmp_path).servers) == ["inline"]


def test_the_example_file_is_free_of_problems() -> None:
    """What users copy works."""
    file = load_servers(Path(__file__).parents[2] / "mcp_config.json.example")
    assert [name for name, config in file.servers.items() if not config.disabled] == ["time", "fetch", "memory"]
    assert [name for name, config in file.servers.items() if config.disabled] == ["git", "filesystem", "github"]
    assert file.problems == ()
    assert not file.servers["filesystem"].tools.allows("write_file")
