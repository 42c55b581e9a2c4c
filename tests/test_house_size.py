"""The size of the house: lines of code in all, and how long its files are."""

import ast
import io
import tokenize
from statistics import median

import pytest
from syntax_trees import PACKAGE, list_nodes, package_trees

MAX_CODE_LINES = 64_866
"""Lines that hold code: without blank ones, comments and docstrings. A change that needs more raises it by what it
adds, 1,500 at most, and says why: the last one, what audits of isolation and of the shared gateway found, added 288."""
MAX_MEDIAN_FILE_LINES = 150
MAX_P90_FILE_LINES = 350
"""A limit alone fills files up to it; these show whether they drift there."""
NO_CODE = {*(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE), *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)}


def count_code_lines(text: str, tree: ast.Module) -> int:
    """Lines with code: each that a token stands on, but for texts that nothing uses."""
    described = {
        line
        for node in list_nodes(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - described)


@pytest.mark.long  # reads each token of the package, two seconds of it
def test_the_package_does_not_grow_unseen() -> None:
    """Whoever adds a feature sees what it costs readers."""
    count = sum(count_code_lines((PACKAGE / path).read_text("utf-8"), tree) for path, tree in package_trees().items())
    assert count <= MAX_CODE_LINES


def test_files_stay_short_on_the_whole() -> None:
    """Half of them within 150 lines, nine of ten within 350."""
    lengths = sorted(len((PACKAGE / path).read_text("utf-8").splitlines()) for path in package_trees())
    assert median(lengths) <= MAX_MEDIAN_FILE_LINES
    assert lengths[int(len(lengths) * 0.9)] <= MAX_P90_FILE_LINES


def test_only_code_is_counted() -> None:
    """Docstrings, texts below constants, comments and blank lines are for readers."""
    text = '"""Module.\n\nMore."""\n\nimport os  # why\n\n# A comment.\nX = (\n    1,\n)\n"""Of X."""\ny = """a\nb"""\n'
    assert count_code_lines(text, ast.parse(text)) == 6
