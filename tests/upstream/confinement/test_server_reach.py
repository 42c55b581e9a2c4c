"""What a confined server may reach, worked out without starting anything."""

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from smart_mcp_proxy.servers import explain_reach
from smart_mcp_proxy.servers.entry import parse_entry
from smart_mcp_proxy.upstream.confinement import reach
from smart_mcp_proxy.upstream.confinement.bubblewrap import wrap
from smart_mcp_proxy.upstream.confinement.reach import (
    Carving,
    ServerReach,
    Shelter,
    choose_private_folder,
    make_private_folder,
    plan_reach,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with what people have in theirs."""
    for folder in (".ssh", ".local/bin", ".local/share/keyrings", ".nvm", "project/src", "venv/bin", "tools/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "project" / "package.json").write_text("{}")
    (tmp_path / "project" / "src" / "server.js").write_text("")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /usr/local/python/bin\nversion = 3.12\n")
    (tmp_path / "venv" / "bin" / "python").write_text("")
    (tmp_path / "venv" / "bin" / "python").chmod(0o755)
    return tmp_path


def planned(home: Path, *, environ: dict[str, str] | None = None, **entry: Any) -> ServerReach:
    """The reach of a server."""
    config, _ = parse_entry("s", {"command": "node"} | entry)
    folder = choose_private_folder(Shelter(home / "data" / "sandbox", (home / "data",)), "s")
    return plan_reach(config, {"HOME": str(home), "PATH": "/usr/bin"} | (environ or {}), folder)


def test_a_script_is_read_with_its_project(home: Path) -> None:
    """The nearest folder above it that is one; never a whole home."""
    script = home / "project" / "src" / "server.js"
    assert str(home / "project") in planned(home, args=[str(script)]).read
    (home / "project" / "package.json").unlink()
    assert str(home / "project" / "src") in planned(home, args=[str(script)]).read
    alone = home / "alone.py"
    alone.write_text("")
    reach = planned(home, args=[str(alone)])
    assert str(alone) in reach.read and str(home) not in reach.read


def test_only_the_first_script_is_the_programs_own_where_paths_are_proposed(home: Path) -> None:
    """So an argument of an agent opens no project beside it; what a variable holds is no script that was shown."""
    script = home / "project" / "src" / "server.js"
    others = [home / name / "tool.py" for name in ("tools", "venv")]
    for other in others:
        other.touch()
    args = [str(script), *map(str, others)]
    assert {f"{home}/project", f"{home}/tools", f"{home}/venv"} <= set(planned(home, args=args).read)
    read = planned(home, args=args, allow={}).read
    assert f"{home}/project" in read and not {f"{home}/tools", f"{home}/venv"} & set(read)
    assert f"{home}/tools" not in planned(home, args=["gone.py", str(others[0])], allow={}).read
    entry = {"command": "python", "args": ["${file:/x}", "-", *args[:1]], "allow": {}}
    config = replace(parse_entry("s", entry)[0], args=(str(others[0]), "-", str(script)))
    assert reach.name_reach(config).projects == (f"{home}/project",)


def test_what_is_shown_names_the_projects_of_scripts(home: Path) -> None:
    """Each once, and none that a link leads to which the server may change."""
    scripts = [str(home / "project" / "src" / name) for name in ("server.js", "other.js")]
    (home / "project" / "src" / "other.js").touch()
    (home / "tools" / "evil.py").touch()
    (home / "project" / "evil.py").symlink_to(home / "tools" / "evil.py")
    config, _ = parse_entry("s", {"command": "node", "args": scripts})
    shown = reach.find_shown_paths(config, {})
    assert shown is not None and shown.projects == (f"{home}/project",)
    led, _ = parse_entry("s", {"command": "node", "args": [f"{home}/project", f"{home}/project/evil.py"]})
    assert reach.name_reach(led).projects == ()


def test_an_installed_package_is_read_with_those_beside_it(home: Path) -> None:
    """npm puts what a package needs beside it."""
    script = home / "project" / "node_modules" / "@scope" / "server" / "dist" / "index.js"
    script.parent.mkdir(parents=True)
    script.write_text("")
    (script.parents[1] / "package.json").write_text("{}")
    assert f"{home}/project/node_modules" in planned(home, args=[str(script)]).read


def test_a_link_that_npm_made_is_read_with_the_packages_beside_it(home: Path) -> None:
    """`node_modules/.bin/NAME` leads into a package; a link that the server may have made leads nowhere."""
    packages = home / "project" / "node_modules"
    program = packages / "server" / "dist" / "index.js"
    for folder in (program.parent, packages / ".bin"):
        folder.mkdir(parents=True)
    program.write_text("")
    (packages / ".bin" / "server").symlink_to(program)
    assert str(packages) in planned(home, command=str(packages / ".bin" / "server")).read
    (home / "project" / "src" / "server").symlink_to(program)
    changeable = planned(home, command=str(home / "project/src/server"), args=[str(home / "project/src")])
    assert str(packages) not in changeable.read


def test_a_virtual_environment_is_read_with_its_python(home: Path) -> None:
    """Its `pyvenv.cfg` says where that is."""
    read = planned(home, command=str(home / "venv" / "bin" / "python")).read
    assert {str(home / "venv"), "/usr/local/python"} <= set(read)


def test_packages_that_are_edited_where_they_stand_are_read(home: Path) -> None:
    """Their folders stand in the environment's `.pth` files and finders."""
    packages = home / "venv" / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "_editable_a.pth").write_text(f"{home}/project\nimport site\n")
    (packages / "__editable___b_finder.py").write_text(f"MAPPING = {{'b': '{home}/tools'}}\n")
    assert {f"{home}/project", f"{home}/tools"} <= set(planned(home, command=f"{home}/venv/bin/python").read)


def test_folders_of_programs_open_nothing_beside_them(home: Path) -> None:
    """`~/.local/bin` is no reason to read `~/.local`, which holds the keyring; installations are read whole."""
    (home / "node" / "lib" / "node_modules").mkdir(parents=True)
    path = f"{home}:{home}/.local/bin:{home}/tools/bin:{home}/node/bin:/usr/bin"
    read = set(planned(home, environ={"PATH": path}).read)
    assert {f"{home}/.local/bin", f"{home}/tools/bin", f"{home}/node"} <= read
    assert read.isdisjoint({f"{home}/.local", f"{home}/tools", str(home)})


def test_a_program_in_the_home_opens_nothing_beside_it(home: Path) -> None:
    """It is read alone."""
    (home / "run").write_text("")
    read = planned(home, command=f"{home}/run").read
    assert f"{home}/run" in read and f"{home}/project" not in read


@pytest.mark.parametrize("name", ["PYENV_ROOT", "SSL_CERT_FILE", "NVM_DIR"])
def test_a_variable_of_an_entry_opens_nothing_where_it_says_what_is_allowed(home: Path, name: str) -> None:
    """Those of the gateway's environment do; `HOME` of an entry is not the user's home either."""
    place = home / "place"
    place.mkdir()
    for entry in ({name: str(place)}, {"HOME": str(place), "PATH": f"{home}/.local/bin"}):
        read = planned(home, allow={}, env=entry).read
        assert str(place) not in read and f"{home}/.local" not in read


def test_a_server_opens_nothing_for_itself_by_what_it_may_change(home: Path) -> None:
    """Neither by a link nor by words of an environment in a folder that it may change."""
    (home / "secret").mkdir()
    (home / "project" / "data").symlink_to(home / "secret")
    venv = home / "project" / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "tool").symlink_to(home / "secret" / "tool")
    (venv / "pyvenv.cfg").write_text(f"home = {home}/secret/bin\n")
    args = [f"{home}/project", f"{home}/project/data"]
    reach = planned(home, command=f"{venv}/bin/tool", args=args)
    opened = (*reach.read, *reach.write)
    assert f"{home}/project" in reach.write
    assert not [path for path in opened if path.startswith(f"{home}/secret")]
    assert f"{home}/secret" in planned(home, args=[f"{home}/secret"]).write


def test_a_relative_folder_is_taken_from_the_gateways(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once."""
    monkeypatch.chdir(home)
    reach = planned(home, cwd="project")
    assert (reach.cwd, f"{home}/project" in reach.write) == (f"{home}/project", True)


def test_a_value_that_is_no_path_stops_no_server(home: Path) -> None:
    """Also one that is too long for a name."""
    assert planned(home, args=["a/" + "x" * 300]).write == planned(home).write


def test_runtimes_and_runner_settings_are_named_to_it(home: Path) -> None:
    """They are where they always were, while its home is another; settings with a credential are not."""
    (home / ".npmrc").write_text("fund=false")
    (home / ".gitconfig").write_text("[url]\n  insteadOf = https://me:pw@example.test/")
    reach = planned(home)
    assert reach.variables["NVM_DIR"] == str(home / ".nvm")
    assert reach.variables["NPM_CONFIG_USERCONFIG"] == str(home / ".npmrc")
    assert "GIT_CONFIG_GLOBAL" not in reach.variables and str(home / ".gitconfig") not in reach.read


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        ("[credential]\n\thelper = store", True),
        ('[credential "https://ann@example.com"]\n\thelper = !gh auth git-credential', True),
        ('[url "ssh://git@example.com/"]\n\tinsteadOf = https://example.com/', True),
        ("[user]\n\tsigningkey = 0123456789abcdef0123", True),
        ('[url "https://ann:word@example.com/"]', False),
        (f'[url "https://{"x" * 20}@example.com/"]', False),
        ("[github]\n\ttoken = x", False),
        ("[sendemail]\n\tsmtpPass = x", False),
        ("[http]\n\textraHeader = Authorization: Basic x", False),
    ],
)
def test_settings_of_git_are_read_where_no_secret_stands_in_them(home: Path, line: str, is_read: bool) -> None:
    """Whoever names a helper keeps the secrets elsewhere."""
    (home / ".gitconfig").write_text(f"[user]\n\tname = Ann\n{line}\n")
    reach = planned(home)
    assert (f"{home}/.gitconfig" in reach.read) is is_read is (reach.variables.get("GIT_CONFIG_GLOBAL") is not None)


def test_its_home_and_temporary_folder_are_its_own(home: Path) -> None:
    """Unless its entry says where they are; shared caches are not passed on."""
    shared = {"XDG_CACHE_HOME": "/c", "UV_CACHE_DIR": "/u", "XDG_RUNTIME_DIR": "/run/user/1", "LANG": "C"}
    reach = planned(home, environ=shared)
    private = reach.variables["HOME"]
    assert private.startswith(str(home / "data" / "sandbox" / "s-")) and private in reach.write
    assert reach.variables["TMPDIR"] == f"{private}/tmp" and reach.variables["LANG"] == "C"
    assert not reach.variables.keys() & {"XDG_CACHE_HOME", "UV_CACHE_DIR", "XDG_RUNTIME_DIR"}
    assert planned(home, env={"HOME": "/h"}, environ={"HOME": "/h"}).variables["HOME"] == "/h"


def test_servers_never_share_a_private_folder(tmp_path: Path) -> None:
    """However alike their names become on the disk."""
    shelter = Shelter(tmp_path)
    names = ["a b", "a_b", "a/b", "a" * 200, "a" * 201, "..", "Ä"]
    folders = [choose_private_folder(shelter, name).path for name in names]
    assert len(set(folders)) == len(names) and {folder.parent for folder in folders} == {tmp_path}


def test_it_works_where_words_of_its_entry_mean_something(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else in its home; a path from the root means the same everywhere."""
    monkeypatch.chdir(home)
    assert planned(home, args=[str(home / "project"), "-y"]).cwd == planned(home).variables["HOME"]
    assert planned(home, args=["project"]).cwd == str(home)


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        ("{home}/project", "{home}/project"),
        ("--root={home}/project", "{home}/project"),
        ("file://{home}/project", "{home}/project"),
        ("sqlite:///{home}/project/x.db", "{home}/project"),
        ("{home}/project/new.db", "{home}/project"),
        ("{home}/nothing", None),
        ("project", None),
        ("--verbose", None),
    ],
)
def test_existing_paths_of_arguments_are_open(home: Path, argument: str, found: str | None) -> None:
    """A database with the folder that it writes its journal to; a word that is no path opens nothing."""
    (home / "project" / "x.db").write_text("")
    write = [path for path in planned(home, args=[argument.format(home=home)]).write if "/sandbox/" not in path]
    assert write == ([found.format(home=home)] if found else [])


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        (".", [""]),
        ("..", [".."]),
        ("project", ["project"]),
        ("--root=project", ["project"]),
        ("--root=./project", ["project"]),
        ("project:tools/bin", ["project", "tools/bin"]),
        ("--dirs=project,tools", ["project", "tools"]),
        ("{home}/project:~/tools", ["project", "tools"]),
        ("file://{home}/a%20b", ["a b"]),
        ("project,nothing", []),
        ("project,", []),
        ("file", []),
        ("--root=file", []),
        ("project/src/server.js", []),
        ("--root=", []),
        ("", []),
    ],
)
def test_words_of_arguments_that_name_folders_are_open(
    home: Path, monkeypatch: pytest.MonkeyPatch, argument: str, found: list[str]
) -> None:
    """In the working directory, also several in a list, of which each has to be there."""
    monkeypatch.setenv("HOME", str(home))
    (home / "work" / "a b").mkdir(parents=True)
    (home / "a b").mkdir()
    (home / "file").write_text("")
    monkeypatch.chdir(home)
    named = reach.find_named_paths(parse_entry("s", {"command": "x", "args": [argument.format(home=home)]})[0], home)
    assert list(named.write) == [str(home / path) for path in found]


def test_a_runners_package_and_variables_open_no_folder_by_a_word(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone of the package in the working directory is not meant, nor are folders that programs are looked for in."""
    monkeypatch.chdir(home)
    entry = {"args": ["-y", "project", "tools"], "env": {"MODE": "venv", "PATH": f"{home}/venv/bin:{home}/tools/bin"}}
    found = [path for path in planned(home, command="npx", **entry).write if "/sandbox/" not in path]
    assert found == [f"{home}/tools"]


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        ("~/project", "project"),
        ("--root=~/project", "project"),
        ("~/project/new.db", "project"),
        ("~/x.db", "x.db"),
        ("~/nothing", None),
        ("~project", None),
        ("~", None),
        ("of ~/project", None),
    ],
)
def test_a_tilde_in_an_argument_is_the_users_home(
    home: Path, monkeypatch: pytest.MonkeyPatch, argument: str, found: str | None
) -> None:
    """In its own home the server finds a link there; what an agent has named stays closed."""
    monkeypatch.setenv("HOME", str(home))
    (home / "x.db").write_text("")
    reach = planned(home, args=[argument])
    opened = [path for path in reach.write if "/sandbox/" not in path]
    assert opened == ([f"{home}/{found}"] if found else [])
    assert (reach.links.get(found) == f"{home}/{found}") if found else ("project" not in reach.links)
    assert not [path for path in planned(home, args=[argument], allow={}).write if "/sandbox/" not in path]


def test_a_database_in_the_home_itself_opens_nothing_else(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is there would be open for the sake of its journal; what is shown says what it lacks."""
    monkeypatch.setenv("HOME", str(home))
    (home / "x.db").write_text("")
    assert {path for path in planned(home, args=[f"--db={home}/x.db"]).write if "/sandbox/" not in path} == {
        f"{home}/x.db"
    }
    assert f"It makes no files beside {home}/x.db" in explain_reach(
        {"read": [], "write": [f"{home}/x.db"], "network": True}
    )
    assert "beside" not in explain_reach({"read": [], "write": [f"{home}/project/x.db"], "network": True})


def test_bubblewrap_mounts_nothing_twice(home: Path) -> None:
    """What is in a folder comes with it, but what is opened otherwise; a link's target is mounted in its own place."""
    (home / "project" / "out").symlink_to(home / "tools")
    read = [str(home / path) for path in ("project", "project/src", "project/out", "venv", "venv/bin/python", "venvs")]
    write = [str(home / path) for path in ("project/src", "venv/bin", "venv/bin/x")]
    words = wrap("bwrap", planned(home)._replace(read=tuple(read), write=tuple(write)), ["node"], 3, {})
    found = [(word, words[at + 1].removeprefix(f"{home}/")) for at, word in enumerate(words) if "bind" in word]
    assert found == [
        ("--ro-bind-try", "project"),
        ("--ro-bind-try", "tools"),
        ("--bind-try", "project/src"),
        ("--ro-bind-try", "venv"),
        ("--bind-try", "venv/bin"),
        ("--ro-bind-try", "venv/bin/python"),
        ("--ro-bind-try", "venvs"),
    ]


def test_carving_keeps_guarded_and_hidden_entries_out(home: Path) -> None:
    """Also below a path that holds the whole home; a hidden folder or one of programs that is named itself is open."""
    for folder in ("data", "snap/firefox", "Library/Cookies"):
        (home / folder).mkdir(parents=True)
    carve = Carving(home, (home / "data",))
    kept = set(carve.each([home]))
    assert kept == {str(home / name) for name in ("project", "venv", "tools")}
    for folder in (".ssh", "snap", "Library/Cookies"):
        assert set(carve.each([home / folder])) == {str(home / folder)}
    assert list(carve.each([home / "data", home / "data" / "x"])) == []
    assert str(home / ".ssh") not in set(carve.each([home.parent]))


def test_a_folder_with_a_guarded_file_can_be_listed(home: Path) -> None:
    """Python looks for modules by listing; a guarded folder's names stay hidden."""
    file = home / "project" / "mcp_config.json"
    file.write_text("{}")
    carve = Carving(home, (home / "data", file))
    assert set(carve.each([home / "project"])) == {f"{home}/project/package.json", f"{home}/project/src"}
    assert carve.listed == [str(home / "project")]
    (home / "tools" / "data").mkdir()
    hidden = Carving(home, (home / "tools" / "data",))
    assert list(hidden.each([home / "tools"])) == [f"{home}/tools/bin"] and hidden.listed == []


def test_links_lead_to_what_is_allowed_of_the_home(home: Path) -> None:
    """At its usual place; what the server has put there itself is left alone."""
    reach = planned(home, allow={"read": ["~/.ssh"], "write": ["~/project/src"]})
    folder = choose_private_folder(Shelter(home / "data" / "sandbox"), "s")
    make_private_folder(folder, reach.links)
    assert (folder.path / ".ssh").readlink() == home / ".ssh"
    assert (folder.path / "project" / "src").readlink() == home / "project" / "src"
    (folder.path / ".ssh").unlink()
    (folder.path / ".ssh").mkdir()
    make_private_folder(folder, reach.links)
    assert (folder.path / ".ssh").is_dir() and not (folder.path / ".ssh").is_symlink()


def test_a_link_that_the_server_made_leads_us_nowhere(home: Path) -> None:
    """Folders are made inside its home alone."""
    folder = choose_private_folder(Shelter(home / "data" / "sandbox"), "s")
    make_private_folder(folder, {})
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    (folder.path / "project").symlink_to(elsewhere)
    make_private_folder(folder, {"project/deep/src": str(home / "project" / "src")})
    assert os.listdir(elsewhere) == []


def test_the_gateways_own_code_is_not_changed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies in an allowed folder, perhaps; reading it does no harm."""
    code = home / "work" / "gateway" / "code"
    for file in (code / "x.py", home / "work" / "other.txt"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.setattr(reach, "OWN_CODE", (code,))
    found = planned(home, allow={"read": ["~/work"], "write": ["~/work"]})
    assert str(home / "work") in found.read
    assert str(home / "work" / "other.txt") in found.write
    assert not any(code == Path(path) or Path(path) in code.parents for path in found.write)
