"""Entries made of what a registry lists: what would run, what it needs, and what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from smart_mcp_proxy.errors import RequestError, UpstreamError
from smart_mcp_proxy.registry import Plan, plan_entry, read_listing, read_page
from smart_mcp_proxy.servers import warnings_about
from smart_mcp_proxy.servers.expand import references

STDIO = {"type": "stdio"}


def server(**members: Any) -> Any:
    document = {"name": "io.github.example/thing", "description": "A thing.", "version": "1.0.0", **members}
    return read_listing(json.dumps({"server": document}).encode()).server


def package(kind: str = "npm", identifier: str = "thing", **members: Any) -> dict[str, Any]:
    return {"registryType": kind, "identifier": identifier, "version": "1.2.3", "transport": STDIO, **members}


def planned(*packages: dict[str, Any], pick: int | None = None, **options: dict[str, list[str]]) -> Plan:
    given = {f"--{name}": values for name, values in options.items()}
    return plan_entry(server(packages=list(packages)), given, pick)


def line(plan: Plan) -> str:
    return " ".join([plan.entry["command"], *plan.entry["args"]])


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (package(identifier="@scope/thing"), "npx -y @scope/thing@1.2.3"),
        (package(runtimeArguments=[{"type": "named", "name": "-y", "value": ""}]), "npx -y thing@1.2.3"),
        (package("pypi"), "uvx thing@1.2.3"),
        (package("oci", "docker.io/me/thing"), "docker run -i --rm docker.io/me/thing:1.2.3"),
        (package("oci", "ghcr.io/me/thing:9"), "docker run -i --rm ghcr.io/me/thing:9"),
        (package("oci", "host:5000/thing", runtimeHint="podman"), "podman run -i --rm host:5000/thing:1.2.3"),
        (package("nuget", "A.Thing"), "dnx --yes A.Thing@1.2.3 --"),
    ],
)
def test_a_package_is_started_by_its_package_manager(made: dict[str, Any], expected: str) -> None:
    """Pinned to its version, and in quarantine."""
    plan = planned(made)
    assert line(plan) == expected
    assert plan.entry["quarantined"] is True


def test_arguments_stand_as_the_schema_says() -> None:
    """Long flags in one word, short ones in two, positions as they are; repeated ones each; booleans in small letters.

    They are NamedArgument and Input.

    Source: https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/api/openapi.yaml
    """
    arguments = [
        {"type": "named", "name": "--port", "default": 80, "format": "number"},
        {"type": "named", "name": "-v", "value": True},
        {"type": "named", "name": "--quiet", "value": ""},
        {"type": "named", "name": "--left-out"},
        {"type": "positional", "valueHint": "dir", "isRequired": True, "isRepeated": True},
    ]
    plan = planned(package(packageArguments=arguments), set={"dir": ["/a", "/b"], "--port": ["81"]})
    assert line(plan) == "npx -y thing@1.2.3 --port=81 -v true --quiet /a /b"
    assert plan.shown["args"][-2:] == ["***", "***"]
    assert {need.name: need.source for need in plan.needs} == {
        "--port": "given",
        "-v": "publisher",
        "--quiet": "publisher",
        "--left-out": "left_out",
        "dir": "given",
    }


def test_needed_values_are_read_from_variables_at_the_start() -> None:
    """One of the environment from its own name; others from one that begins with the server's."""
    env = [{"name": "API_KEY", "isRequired": True, "isSecret": True}, {"name": "MODE", "default": "fast"}]
    arguments = [{"type": "positional", "valueHint": "file path", "isRequired": True}]
    plan = planned(package(environmentVariables=env, packageArguments=arguments))
    assert plan.entry["env"] == {"API_KEY": "${API_KEY}", "MODE": "fast"}
    assert plan.entry["args"][-1] == "${THING_FILE_PATH}"
    remote = {"type": "sse", "url": "https://{host}/sse", "variables": {"host": {"isRequired": True}}}
    assert plan_entry(server(remotes=[remote]), {}).entry["url"] == "https://${THING_HOST}/sse"


def test_a_container_gets_its_variables_by_name() -> None:
    """Their values stay in the entry's env and off the command line, which every process may read."""
    made = package("oci", "me/thing", environmentVariables=[{"name": "KEY", "isRequired": True}])
    plan = planned(made, env={"KEY": ["hunter2"]})
    assert line(plan) == "docker run -i --rm -e KEY me/thing:1.2.3"
    assert (plan.entry["env"], plan.shown["env"]) == ({"KEY": "hunter2"}, {"KEY": "***"})
    assert "hunter2" not in str(plan.shown) + str(plan.needs)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (package("mcpb", "https://example.com/x.mcpb"), "packages of type 'mcpb' are not supported"),
        (package("cargo"), "packages of type 'cargo' are not supported"),
        (package(runtimeHint="bash"), "it wants to be started with 'bash', not with npx"),
        (package(identifier="--eval=evil"), "is no name of a package"),
        (package(identifier="thing; rm -rf /"), "is no name of a package"),
        (package("pypi", "thing @ https://evil.example"), "is no name of a package"),
        (package("oci", "-v=/:/host"), "is no name of a package"),
        (package(version="^1.2"), "is no single version"),
        (package(version="1.x"), "is no single version"),
        (package(version="--registry=evil"), "is no single version"),
        (package(fileSha256="a" * 64), "checked against a hash"),
        (package(transport={"type": "streamable-http", "url": "http://localhost:1/mcp"}), "would listen on an address"),
        (package(environmentVariables=[{"name": "A=B"}]), "is no name of a variable"),
    ],
)
def test_what_cannot_be_started_is_refused_with_its_reason(made: dict[str, Any], words: str) -> None:
    """Nothing of a publisher's becomes an option of the package manager, or another program."""
    for pick in (None, 1):
        with pytest.raises(RequestError, match=words.replace("'", ".")) as refused:
            planned(made, pick=pick)
        assert refused.value.error_code == "unsupported_server"


def test_the_first_that_can_be_used_is_chosen_and_others_by_number() -> None:
    """Packages first, then addresses; those that cannot be used say why."""
    document = server(
        packages=[package("mcpb", "https://example.com/x.mcpb"), package("pypi")],
        remotes=[{"type": "streamable-http", "url": "https://example.com/mcp"}, {"type": "websocket", "url": "ws://x"}],
    )
    plan = plan_entry(document, {})
    assert plan.chosen == 2
    assert [bool(offer.problem) for offer in plan.offers] == [True, False, False, True]
    assert plan_entry(document, {}, 3).entry == {"url": "https://example.com/mcp", "type": "http", "quarantined": True}
    for pick in (0, 5):
        with pytest.raises(RequestError, match="There is no choice"):
            plan_entry(document, {}, pick)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "javascript:x", "https://a b/mcp", "{x}", "", "-x"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """Whatever it is made of."""
    remote = {"type": "sse", "url": url, "variables": {"x": {"value": "ftp://x"}}}
    with pytest.raises(RequestError, match="is no http or https address"):
        plan_entry(server(remotes=[remote]), {})


@pytest.mark.parametrize(
    ("option", "values", "words"),
    [
        ("env", {"MODE": ["slow"]}, "Use one of: fast, safe"),
        ("env", {"MOD": ["fast"]}, "Close: MODE"),
        ("env", {"MODE": ["fast", "safe"]}, "can be given once"),
        ("env", {"FIXED": ["x"]}, "set by the server's publisher"),
        ("env", {"COUNT": ["many"]}, "Use a number"),
        ("env", {"FLAG": ["yes"]}, "Use true or false"),
        ("header", {"X": ["1"]}, "It takes: none"),
        ("set", {"MODE": ["fast"]}, "It takes: none"),
    ],
)
def test_values_that_do_not_fit_are_refused(option: str, values: dict[str, list[str]], words: str) -> None:
    """With those that do."""
    env = [
        {"name": "MODE", "choices": ["fast", "safe"]},
        {"name": "FIXED", "value": "1"},
        {"name": "COUNT", "format": "number"},
        {"name": "FLAG", "format": "boolean"},
    ]
    with pytest.raises(RequestError) as refused:
        planned(package(environmentVariables=env), **{option: values})
    assert words in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("npm", {"type": "named", "name": "--package", "value": "other"}),
        ("npm", {"type": "named", "name": "-p", "value": "other"}),
        ("npm", {"type": "named", "name": "-q", "value": "other"}),
        ("npm", {"type": "named", "name": "--registry", "value": "https://index.example"}),
        ("npm", {"type": "positional", "value": "other"}),
        ("pypi", {"type": "named", "name": "--from", "value": "other"}),
        ("pypi", {"type": "named", "name": "--with", "value": "other"}),
        ("pypi", {"type": "named", "name": "--index", "value": "https://index.example"}),
        ("oci", {"type": "named", "name": "-v", "value": "/:/host"}),
        ("oci", {"type": "named", "name": "--mount", "value": "type=bind,src=/,dst=/host"}),
        ("oci", {"type": "named", "name": "--privileged", "value": ""}),
        ("oci", {"type": "named", "name": "--network", "value": "host"}),
        ("oci", {"type": "positional", "value": "other:1"}),
        ("nuget", {"type": "named", "name": "--add-source", "value": "https://index.example"}),
    ],
)
def test_an_option_that_is_not_listed_is_left_out_and_said(kind: str, option: dict[str, str]) -> None:
    """No publisher changes by it which package, index or mounts are used."""
    plan = planned(package(kind, runtimeArguments=[option]))
    assert plan.entry == planned(package(kind)).entry
    assert [remark for remark in plan.remarks if remark.startswith("Left out:") and option["value"] in remark]


def test_options_that_are_listed_are_passed_on() -> None:
    """Each as its runner writes it."""
    quiet = {"type": "named", "name": "-q", "value": ""}
    assert line(planned(package(runtimeArguments=[quiet]))) == "npx -y -q thing@1.2.3"
    python = {"type": "named", "name": "--python", "value": "3.12"}
    assert line(planned(package("pypi", runtimeArguments=[python]))) == "uvx --python=3.12 thing@1.2.3"
    level = {"type": "named", "name": "-e", "value": "LEVEL=debug"}
    plan = planned(package("oci", "me/thing", runtimeArguments=[level]))
    assert (line(plan), plan.remarks) == ("docker run -i --rm -e LEVEL=debug me/thing:1.2.3", [])
    assert warnings_about(plan.entry) == []


def test_an_option_for_which_the_user_gives_a_value_is_passed_on_with_a_warning() -> None:
    """A mount, say: the person who approves its entry is shown it; a word that is no option never is."""
    mount = {
        "type": "named",
        "name": "--mount",
        "value": "src={dir},dst=/x",
        "variables": {"dir": {"isRequired": True}},
    }
    made = package("oci", "me/thing", runtimeArguments=[mount])
    assert "--set dir=VALUE" in planned(made).remarks[0]
    plan = planned(made, set={"dir": ["/data"]})
    assert line(plan) == "docker run -i --rm --mount=src=/data,dst=/x me/thing:1.2.3"
    assert warnings_about(plan.entry) == [
        "The option '--mount=src=/data,dst=/x' of docker can change what is fetched or what the server may reach."
    ]
    other = {"value": "other{x}", "variables": {"x": {"isRequired": True}}}
    for option in ({"type": "positional"}, {"type": "named", "name": "-q"}):
        with pytest.raises(RequestError, match="The server takes no --set 'x'"):
            planned(package(runtimeArguments=[option | other]), set={"x": ["1"]})


@pytest.mark.parametrize(
    ("command", "args", "told"),
    [
        ("npx", ["-y", "thing@1", "--package=x"], 0),
        ("/usr/bin/npx", ["-y", "--package=x", "thing"], 1),
        ("uvx", ["--from", "git+https://a.example", "thing"], 1),
        ("docker", ["run", "-i", "--rm", "-e", "KEY", "me/thing", "-v", "/:/x"], 0),
        ("podman", ["run", "--privileged", "-i", "me/thing"], 1),
        ("server", ["--package=x"], 0),
    ],
)
def test_an_entry_that_waits_is_shown_with_its_options(command: str, args: list[str], told: int) -> None:
    """Whoever wrote it; those of the program behind are its own."""
    entry = {"command": command, "args": args}
    assert len(warnings_about(entry | {"quarantined": True})) == told
    assert warnings_about(entry) == []


TEXTS = st.text(alphabet="${}:abAB_-keyringfile/. ", max_size=24)


@drawn(TEXTS, TEXTS, TEXTS)
def test_a_publisher_s_text_never_reads_a_variable_file_or_secret_of_the_user(one: str, two: str, three: str) -> None:
    """However it is put together, no text of theirs refers to anything when the server starts."""
    variables = {"a": {"default": two}, "b": {"value": three}}
    made = package(
        environmentVariables=[{"name": "A", "default": one}, {"name": "B", "value": one, "variables": variables}],
        packageArguments=[{"type": "positional", "value": f"{one}{{a}}{two}{{b}}", "variables": variables}],
    )
    entry = planned(made).entry
    assert [source for text in (*entry["args"], *entry["env"].values()) for source in references(text)] == []


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"\xff", b'{"server": {}}', b'{"server": {"name": 1}}', b"[" * 100_000, b'{"servers": 1}'],
)
def test_answers_of_another_form_are_the_registry_s_fault(body: bytes) -> None:
    """And say so."""
    for read in (read_listing, read_page):
        with pytest.raises(UpstreamError, match=r"not what API v0\.1 says"):
            read(body)


def test_one_publisher_s_slip_leaves_the_rest_of_a_page() -> None:
    """With the cursor of the next page; members that are null or unknown are no slip."""
    good = {"server": {"name": "a/b", "version": "1", "packages": None, "icons": [1], "title": None}, "_meta": None}
    listings = read_page(json.dumps({"servers": [{"server": 1}, good], "metadata": {"nextCursor": "x"}}).encode())
    assert [each.server.name for each in listings] == ["a/b"]


def test_what_is_known_of_a_package_is_remarked() -> None:
    """Its publisher may not have listed it."""
    plan = planned(package(identifier="@modelcontextprotocol/server-brave-search"))
    assert plan.remarks == ["It is known to need BRAVE_API_KEY in its environment."]
