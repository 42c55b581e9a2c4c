"""The law of the house: size, shape and order of the source. Each rule is shown to find what it forbids."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from syntax_trees import PACKAGE, list_nodes, package_trees, parsed

from smart_mcp_proxy import errors

ROOT = PACKAGE.parent

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_P90_FUNCTION_LINES = 30
MAX_FOLDER_MODULES = 16
MAX_FIRST_LINE_CHARS = 100
MAX_NAMES_AT_ONCE = 4
RIDDLES = ("What ", "Who ", "Whoever ", "Where ", "Which ", "How ", "One ", "Of ", "It ", "So ", "Those ", "Nobody ")
VAGUE = ("is told", "are told", "another one", "other ones")
MAX_PARTICIPLES = 0.02
MAX_SUFFIXED = 0.015
"""Shares of all functions. In httpcore, FastMCP, trio and litestar 0.2 to 2.4 % begin with a participle."""
SUFFIXES = ("_of", "_in", "_for")
PARTICIPLE = re.compile(
    "_*(begun|borne|bound|bought|broken|brought|built|caught|chosen|dealt|done|drawn|driven|fed|felt|found|gone|given|grown|"
    "hidden|held|heard|kept|known|laid|led|left|lent|lost|made|meant|met|overridden|paid|risen|said|seen|sent|shown|sold|"
    "sought|spent|spoken|stood|struck|taken|taught|told|torn|understood|withdrawn|won|written|[a-z]{3,}ed|[a-z]{2,}ing)(_|$)"
)
NO_PARTICIPLES = {"embed", "exceed", "feed", "need", "proceed", "bring", "ping", "ring", "seed", "speed", "string"}
"""They end as participles do."""
BROAD = {"Exception", "BaseException"}

LAZY_FOLDERS = {"cli"}
"""The command line parses before it imports the gateway."""
EDGE_FILES = {
    "catalog/store/stores.py",
    "catalog/tables/upsert.py",
    "desktop/http/link.py",
    "desktop/joining.py",
    "gateway/gateway.py",
    "gateway/observability/choose.py",
    "gateway/observability/export.py",
    "gateway/observability/otel_edge.py",
    "gateway/sandbox/runtimes.py",
    "policy/scanner/__init__.py",
    "search/embedders/minilm.py",
    "search/embedders/openai.py",
    "search/embedders/transformers.py",
    "search/vectors/faiss_edge.py",
    "search/engines/rank_bm25.py",
    "secrets/aes_edge.py",
    "secrets/keyring_edge.py",
    "upstream/http/__init__.py",
    "upstream/oauth/auth.py",
    "web/common/refusals.py",
    "web/metrics/exposition.py",
    "web/page/beside.py",
    "web/rest/openapi.py",
    "web/serve.py",
}
"""One file for each optional dependency, and for what few starts need: the scanner, whose rules take a fifth of a
second, pages, whose templates take a tenth, cryptography, REST for the command line, FastMCP, which only HTTP needs,
and the start of a gateway in the background, whose memory each client would have, as that of TLS. Nothing else may
import inside a function."""
PRIVATE_NAMES_FOLDER = "fastmcp_compat"
"""The one place that may use private names of fastmcp and mcp."""

DOCUMENTED = {
    "os._exit",
    "opentelemetry._logs",
    "opentelemetry.exporter.otlp.proto.http._log_exporter",
    "opentelemetry.sdk._logs",
    "opentelemetry.sdk._logs.export",
}
"""Public by their documentation, whatever their names look like."""


class Source(NamedTuple):
    """One file of a package: its path below the package, its lines and its syntax tree."""

    path: str
    lines: list[str]
    tree: ast.Module


def sources(package: Path) -> Iterable[Source]:
    """All Python files of a package."""
    return sources_of_the_house() if package == PACKAGE else read_sources(package)


@cache
def sources_of_the_house() -> list[Source]:
    """Those that every rule looks at, read once."""
    return [Source(path, lines_of(PACKAGE / path), tree) for path, tree in package_trees().items()]


def read_sources(package: Path) -> Iterator[Source]:
    """All Python files of a package, read now."""
    for file, tree in parsed(sorted(package.rglob("*.py"))).items():
        yield Source(file.relative_to(package).as_posix(), lines_of(file), tree)


def lines_of(file: Path) -> list[str]:
    """Its lines."""
    return file.read_text(encoding="utf-8").splitlines()


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of a file."""
    for node in list_nodes(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end of the body."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def long_files(package: Path) -> list[str]:
    """Files over the budget."""
    return [source.path for source in sources(package) if len(source.lines) > MAX_FILE_LINES]


def wide_folders(package: Path) -> list[str]:
    """Folders with more modules side by side than a reader can survey."""
    counts = Counter(file.parent for file in package.rglob("*.py") if file.name != "__init__.py")
    wide = [folder for folder, count in counts.items() if count > MAX_FOLDER_MODULES]
    return sorted(folder.relative_to(package).as_posix() for folder in wide)


def import_cycles(package: Path) -> list[str]:
    """Groups of modules that import each other, directly or over others, whichever room they are in."""
    files = {
        source.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): source
        for source in sources(package)
    }
    modules = {f"{package.name}.{name}".removesuffix(".__init__"): source for name, source in files.items()}
    waiting = TopologicalSorter({name: imported(source, modules) - {name} for name, source in modules.items()})
    try:
        waiting.prepare()
    except CycleError as cycle:
        return list(cycle.args[1])
    return []


def module_name(package: Path, source: Source) -> str:
    """The name by which a file is imported."""
    return f"{package.name}.{source.path.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__")


def imported(source: Source, modules: Collection[str]) -> set[str]:
    """Those of `modules` that a file imports, inside functions too; not what it names for the type checker only."""
    typed = {inner for node in list_nodes(source.tree) if is_for_types(node) for inner in ast.walk(node)}
    found = set()
    for node in list_nodes(source.tree):
        if node in typed:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner if inner <= set(modules) else {*inner, node.module}
    return found & set(modules)


def is_for_types(node: ast.AST) -> bool:
    """Whether the node is an `if TYPE_CHECKING`."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def long_functions(package: Path) -> list[str]:
    """Functions over the budget."""
    return [
        f"{source.path}:{function.lineno} {function.name}"
        for source in sources(package)
        for function in functions(source)
        if length(function) > MAX_FUNCTION_LINES
    ]


def p90_function_lines(package: Path) -> int:
    """The length that nine of ten functions stay below."""
    lengths = sorted(length(function) for source in sources(package) for function in functions(source))
    return lengths[int(len(lengths) * 0.9)]


def crowded_assignments(package: Path) -> list[str]:
    """Assignments of more names than a reader pairs with their values, unless they take one value apart."""
    one_value = ast.Call | ast.Await | ast.Subscript | ast.Name | ast.Attribute
    return [
        f"{source.path}:{node.lineno}"
        for source in sources(package)
        for node in list_nodes(source.tree)
        if isinstance(node, ast.Assign) and not isinstance(node.value, one_value)
        for target in node.targets
        if isinstance(target, ast.Tuple | ast.List) and len(target.elts) > MAX_NAMES_AT_ONCE
    ]


def swallowed_errors(package: Path) -> list[str]:
    """Broad handlers that do not end in a raise and do not say `# boundary:` on their line."""
    return [
        f"{source.path}:{line}"
        for source in sources(package)
        for line in map(swallowing_line, list_nodes(source.tree))
        if line is not None and "# boundary:" not in source.lines[line - 1]
    ]


def swallowing_line(node: ast.AST) -> int | None:
    """The node's line if it is an `except` or `suppress()` that may swallow any error."""
    if isinstance(node, ast.ExceptHandler):
        is_broad = node.type is None or not BROAD.isdisjoint(names_in(node.type))
        return node.lineno if is_broad and not isinstance(node.body[-1], ast.Raise) else None
    if isinstance(node, ast.Call) and "suppress" in (getattr(node.func, "id", ""), getattr(node.func, "attr", "")):
        return node.lineno if any(not BROAD.isdisjoint(names_in(arg)) for arg in node.args) else None
    return None


def names_in(node: ast.AST) -> set[str]:
    """Every bare name inside an expression."""
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def unclear_docstrings(package: Path) -> list[str]:
    """Docstrings whose first line is long, a riddle, or vague."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [
        f"{source.path}:{getattr(node, 'lineno', 1)}"
        for source in sources(package)
        for node in list_nodes(source.tree)
        if isinstance(node, documented) and is_unclear((ast.get_docstring(node) or "").partition("\n")[0])
    ]


def vague_descriptions(package: Path) -> list[str]:
    """Texts below constants and fields whose first line is a riddle, or vague."""
    return [
        f"{source.path}:{line}"
        for source in sources(package)
        for node in list_nodes(source.tree)
        if isinstance(node, ast.Module | ast.ClassDef)
        for line, text in list_descriptions(node)
        if is_vague(text.strip().partition("\n")[0])
    ]


def list_descriptions(node: ast.Module | ast.ClassDef) -> Iterator[tuple[int, str]]:
    """The texts behind assignments in a module or class, with their lines."""
    for assignment, below in pairwise(node.body):
        value = (
            below.value if isinstance(below, ast.Expr) and isinstance(assignment, ast.Assign | ast.AnnAssign) else None
        )
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield below.lineno, value.value


def is_unclear(first_line: str) -> bool:
    """Whether a reader would have to translate it, or it is long."""
    return is_vague(first_line) or len(first_line) > MAX_FIRST_LINE_CHARS


def is_vague(first_line: str) -> bool:
    """Whether a reader would have to translate it."""
    return first_line.startswith(RIDDLES) or any(words in first_line for words in VAGUE)


def is_participle(name: str) -> bool:
    """Whether a function's name begins with one: it names a state, where a verb would say the effect."""
    return bool(PARTICIPLE.match(name)) and name.strip("_").split("_")[0] not in NO_PARTICIPLES


def participle_names(package: Path) -> list[str]:
    """Functions whose names begin with a participle."""
    return [
        f"{source.path}:{function.lineno} {function.name}"
        for source in sources(package)
        for function in functions(source)
        if is_participle(function.name)
    ]


def suffixed_names(package: Path) -> list[str]:
    """Functions whose names end in a preposition."""
    return [
        f"{source.path}:{function.lineno} {function.name}"
        for source in sources(package)
        for function in functions(source)
        if function.name.endswith(SUFFIXES)
    ]


def count_functions(package: Path) -> int:
    """All functions and methods."""
    return sum(1 for source in sources(package) for _ in functions(source))


def ambiguous_classes(package: Path) -> list[str]:
    """Public class names that stand for more than one thing."""
    names = Counter(
        node.name
        for source in sources(package)
        for node in list_nodes(source.tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in names.items() if count > 1)


def literal_splats(package: Path) -> list[str]:
    """Calls that spread a tuple or list written out in place, which hides what each argument is."""
    return [
        f"{source.path}:{node.lineno}"
        for source in sources(package)
        for node in list_nodes(source.tree)
        if isinstance(node, ast.Call)
        for given in node.args
        if isinstance(given, ast.Starred) and isinstance(given.value, ast.Tuple | ast.List)
    ]


VARIADIC = frozenset({"Progress", "_send", "select", "start_here", "zip"})
"""What takes any number of arguments of one kind."""


def named_splats(package: Path) -> list[str]:
    """Calls that spread a tuple which the function has written out before, for nothing else."""
    found = []
    for source in sources(package):
        for function in functions(source):
            nodes = list(ast.walk(function))
            written = {
                target.id
                for node in nodes
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            uses = Counter(each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
            spread = [
                (given.value.id, node.lineno)
                for node in nodes
                if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] not in VARIADIC
                for given in node.args
                if isinstance(given, ast.Starred) and isinstance(given.value, ast.Name)
            ]
            spreads = Counter(name for name, _ in spread)
            found += [
                f"{source.path}:{line}" for name, line in spread if name in written and uses[name] == spreads[name]
            ]
    return found


def sql_users(package: Path) -> list[str]:
    """Files outside of the catalog that import a driver of a database."""
    return [
        source.path
        for source in sources(package)
        if not source.path.startswith("catalog/")
        for node in list_nodes(source.tree)
        if isinstance(node, ast.Import) and {"sqlite3", "psycopg"}.intersection(each.name for each in node.names)
    ]


def lazy_imports(package: Path) -> list[str]:
    """Imports inside a function, outside of the folders and files that may have them."""
    return [
        f"{source.path}:{node.lineno}"
        for source in sources(package)
        if source.path.partition("/")[0] not in LAZY_FOLDERS and source.path not in EDGE_FILES
        for function in functions(source)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def private_uses(package: Path) -> list[str]:
    """Uses of another module's `_name`: imported, or read from an imported module."""
    found = []
    for source in sources(package):
        modules: set[str] = set()
        for node in list_nodes(source.tree):
            if isinstance(node, ast.Import):
                modules |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules |= {alias.asname or alias.name for alias in node.names if alias.name[0].islower()}
        for node in list_nodes(source.tree):
            if is_private_use(node, modules, package.name, may_reach_out=source.path.startswith(PRIVATE_NAMES_FOLDER)):
                found.append(f"{source.path}:{node.lineno}")  # type: ignore[attr-defined]  # imports and attributes
    return found


def is_private_use(node: ast.AST, modules: set[str], package: str, *, may_reach_out: bool) -> bool:
    """Whether the node names something private of another module.

    Args:
        node: Any node.
        modules: Names under which the file knows what it imported.
        package: Name of the package under test.
        may_reach_out: Foreign private names are allowed here.
    """
    if isinstance(node, ast.Import):
        paths = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        paths = [f"{node.module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Attribute) and is_private(node.attr) and ast.unparse(node.value) in modules:
        return not may_reach_out and ast.unparse(node) not in DOCUMENTED
    else:
        return False
    return any(
        any(map(is_private, path.split(".")))
        and not (may_reach_out and not path.startswith(f"{package}."))
        and path.rpartition(".")[0] not in DOCUMENTED
        for path in paths
    )


def is_private(name: str) -> bool:
    """Whether a name starts with one underscore."""
    return name.startswith("_") and not name.startswith("__")


class ErrorRow(NamedTuple):
    """One class of the error tree as the table draws it."""

    name: str
    depth: int
    code: str
    http_status: int
    jsonrpc_code: int


def table_rows(docstring: str) -> set[ErrorRow]:
    """The rows of the table in a docstring; the first, without values, is the root."""
    rows = set()
    for line in docstring.splitlines():
        stem, _, _ = line.partition("Error ")
        words = line.split()
        if "─ " in stem:
            at = words.index("├─" if "├─" in words else "└─") + 1
            depth = 1 if stem.index("─") < 3 else 2
            rows.add(ErrorRow(words[at], depth, words[at + 1], int(words[at + 2]), int(words[at + 3])))
    return rows


def class_rows(root: type[errors.ProxyError], depth: int = 1) -> set[ErrorRow]:
    """The same rows from the classes below `root` that errors.py defines."""
    rows = set()
    for cls in root.__subclasses__():
        if cls.__module__ == errors.__name__:
            rows.add(ErrorRow(cls.__name__, depth, cls.code, cls.http_status, cls.jsonrpc_code))
            rows |= class_rows(cls, depth + 1)
    return rows


def check_layers(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs import-linter in `folder`."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--config", str(config), "--no-cache", "--no-logo"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_files_and_functions_stay_within_the_budget() -> None:
    """No file over 500 lines, no function over 60, nine of ten functions within 30."""
    assert long_files(PACKAGE) == []
    assert long_functions(PACKAGE) == []
    assert p90_function_lines(PACKAGE) <= MAX_P90_FUNCTION_LINES


def test_a_folder_holds_no_more_modules_than_a_reader_surveys() -> None:
    """At most 16 side by side; beyond that a room needs walls."""
    assert wide_folders(PACKAGE) == []


def test_no_modules_import_each_other() -> None:
    """Not within a room either."""
    assert import_cycles(PACKAGE) == []


def test_names_are_assigned_a_few_at_a_time() -> None:
    """Five values beside five names on one line save lines, not reading."""
    assert crowded_assignments(PACKAGE) == []


def test_no_two_files_of_tests_have_one_name() -> None:
    """They are imported by their names alone, whichever folder they are in."""
    names = Counter(file.name for file in (ROOT / "tests").rglob("*.py") if file.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_docstrings_begin_in_plain_words() -> None:
    """A noun phrase or an imperative of at most 100 characters; texts below constants and fields have no limit."""
    assert unclear_docstrings(PACKAGE) == []
    assert vague_descriptions(PACKAGE) == []


def test_functions_are_verbs() -> None:
    """At most 2 % begin with a participle, at most 1.5 % end in a preposition."""
    count = count_functions(PACKAGE)
    participles, suffixed = participle_names(PACKAGE), suffixed_names(PACKAGE)
    assert len(participles) <= MAX_PARTICIPLES * count, participles
    assert len(suffixed) <= MAX_SUFFIXED * count, suffixed


def test_a_class_name_stands_for_one_thing() -> None:
    """Within the whole package."""
    assert ambiguous_classes(PACKAGE) == []


def test_arguments_are_given_one_by_one() -> None:
    """No call spreads a tuple or list that is written out in it, or just before it."""
    assert literal_splats(PACKAGE) == []
    assert named_splats(PACKAGE) == []


def test_the_catalog_alone_speaks_to_databases() -> None:
    """But for the words that a shell completes, which must not wait for its import."""
    assert sql_users(PACKAGE) == ["cli/commands/machine/candidates.py"]


def test_no_error_is_swallowed_outside_a_named_boundary() -> None:
    """A broad except raises, or says why it is a boundary."""
    assert swallowed_errors(PACKAGE) == []


def test_imports_stand_at_the_top() -> None:
    """Only the command line and the edges of optional dependencies import inside functions."""
    assert lazy_imports(PACKAGE) == []
    assert [file for file in EDGE_FILES if not (PACKAGE / file).is_file()] == []


def test_private_names_stay_private() -> None:
    """No module uses another one's `_name`; fastmcp_compat alone may use those of fastmcp and mcp."""
    assert private_uses(PACKAGE) == []


def test_imports_point_down_the_layers() -> None:
    """The layers contract of pyproject.toml is kept."""
    done = check_layers(ROOT / "pyproject.toml", ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_error_table_says_what_the_classes_say() -> None:
    """Names, tree, codes, HTTP status and JSON-RPC codes at the head of errors.py are those of the classes."""
    assert errors.__doc__ is not None
    assert table_rows(errors.__doc__) == class_rows(errors.ProxyError)


def test_the_error_table_reads_names_levels_and_codes() -> None:
    """The reader of the table sees a wrong code and a wrong level."""
    right = "├─ AError   a_code  400  -32602  caller\n│   └─ BError   b_code  404  -32602  caller"
    assert table_rows(right) == {
        ErrorRow("AError", 1, "a_code", 400, -32602),
        ErrorRow("BError", 2, "b_code", 404, -32602),
    }
    assert table_rows(right.replace("404", "400")) != table_rows(right)
    assert table_rows(right.replace("│   └─", "└─")) != table_rows(right)


@pytest.fixture
def bad_house(tmp_path: Path) -> Path:
    """A small package that breaks every rule."""
    package = tmp_path / "bad_house"
    files = {
        "__init__.py": "",
        **{f"wide/module_{number}.py": "" for number in range(MAX_FOLDER_MODULES + 1)},
        "low.py": "import bad_house.high\n_secret = 1\n",
        "high.py": (
            "from bad_house import low\nfrom bad_house.low import _secret\nimport mcp._private\n"
            "def use():\n    import json\n    return low._secret\n"
        ),
        "cli/app.py": "def run():\n    import json\n    return json\n",
        "fastmcp_compat/edge.py": "from mcp import _open\nfrom bad_house.low import _secret\n",
        "long.py": "\n" * MAX_FILE_LINES + "x = 1\n",
        "tall.py": "def tall():\n" + "    x = 1\n" * MAX_FUNCTION_LINES + "def low():\n" + "    x = 1\n" * 59,
        "words.py": (
            '"""What it is."""\ndef a():\n    """'
            + "x" * 101
            + '"""\ndef b():\n    """Tell that it is another one."""\n'
            'def c():\n    """Plain words."""\ndef d():\n    pass\ndef e():\n    """It is there."""\n'
        ),
        "constants.py": (
            '"""Numbers."""\nA = 1\n"""Of a word."""\nB: int = 2\n"""Seconds of a pause, '
            + "x" * 101
            + '."""\nclass C:\n    """Numbers."""\n    d: int\n    """Size that is told to another one."""\n'
            '    e: int\n    """Plain words."""\ndef f():\n    A = 1\n    """What it is."""\n'
        ),
        "crowd.py": "a, b, c, d, e = 1, 2, 3, 4, 5\na, b, c, d, e = b'abcde'\na, b, c, d, e = f()\na, b = 1, 2\n",
        "names.py": (
            "class Place:\n    def shown_name(self): pass\n    def show_name(self): pass\n    def embed(self): pass\n"
            "def listing_of(): pass\ndef _kept(): pass\ndef name_for(): pass\nclass _Private: pass\n"
        ),
        "more_names.py": "class Place: pass\nclass _Private: pass\nclass Other: pass\n",
        "spread.py": "def f(x):\n    a, b = (1, 2), 3\n    c = 5, 6\n    d = 7, 8\n    return x(*c, *d) + zip(*d)\n",
        "splat.py": "print(*(1, 2))\nprint(*range(2), *[*range(3), 4])\nprint((1, 2), *range(2), sep=str(*()))\n",
        "swallow.py": (
            "from contextlib import suppress\n"
            "try:\n    x = 1\nexcept Exception:\n    x = 2\n"
            "try:\n    x = 1\nexcept (ValueError, BaseException) as exc:\n    raise KeyError from exc\n"
            "try:\n    x = 1\nexcept:  # boundary: shown as an example\n    x = 2\n"
            "with suppress(Exception):\n    x = 3\n"
            "with suppress(ValueError):\n    x = 3\n"
        ),
    }
    for path, text in files.items():
        file = package / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return package


def test_the_rules_find_what_they_forbid(bad_house: Path) -> None:
    """Every rule reports the broken example, at its line, and nothing that is allowed."""
    assert long_files(bad_house) == ["long.py"]
    assert long_functions(bad_house) == ["tall.py:1 tall"]
    assert p90_function_lines(bad_house) > MAX_P90_FUNCTION_LINES
    assert wide_folders(bad_house) == ["wide"]
    assert set(import_cycles(bad_house)) == {"bad_house.low", "bad_house.high"}
    assert crowded_assignments(bad_house) == ["crowd.py:1", "crowd.py:2"]
    assert unclear_docstrings(bad_house) == ["words.py:1", "words.py:2", "words.py:4", "words.py:10"]
    assert vague_descriptions(bad_house) == ["constants.py:3", "constants.py:9"]
    assert participle_names(bad_house) == ["names.py:5 listing_of", "names.py:6 _kept", "names.py:2 shown_name"]
    assert suffixed_names(bad_house) == ["names.py:5 listing_of", "names.py:7 name_for"]
    assert ambiguous_classes(bad_house) == ["Place"]
    assert literal_splats(bad_house) == ["splat.py:1", "splat.py:2", "splat.py:3"]
    assert named_splats(bad_house) == ["spread.py:5"]
    assert swallowed_errors(bad_house) == ["swallow.py:4", "swallow.py:14"]
    assert lazy_imports(bad_house) == ["high.py:5"]
    assert private_uses(bad_house) == ["fastmcp_compat/edge.py:2", "high.py:2", "high.py:3", "high.py:6"]


def test_the_layers_contract_finds_an_import_that_points_up(bad_house: Path) -> None:
    """The same kind of contract as ours fails on a low layer that imports a high one, and on a file in no layer."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    assert {(rule["type"], rule["exhaustive"]) for rule in rules} == {("layers", True)}
    config = bad_house.parent / "house.toml"
    header = '[tool.importlinter]\nroot_package = "bad_house"\n[[tool.importlinter.contracts]]\nname = "house"\n'
    rule = 'type = "layers"\ncontainers = ["bad_house"]\nexhaustive = true\nlayers = ["high", "low"]\n'
    config.write_text(header + rule, encoding="utf-8")
    done = check_layers(config, bad_house.parent)
    assert done.returncode == 1
    assert "bad_house.low -> bad_house.high" in done.stdout
    assert "bad_house.swallow" in done.stdout
