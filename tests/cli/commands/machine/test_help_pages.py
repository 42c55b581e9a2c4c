"""Help pages at any width: prose is wrapped again, commands stay whole, remarks keep their indentation."""

from smart_mcp_proxy.cli.commands.machine.help_pages import wrap_epilogue

PAGE = """\
Shows the difference and writes nothing, until --write is given. Values that
belong to other entries are hidden in it.

Examples:
  mcpproxy connect                      the clients known, and which are connected
  mcpproxy connect cursor --write
  mcpproxy connect a-client-with-a-name-that-is-longer-than-any-line-of-this-page --write"""


def test_a_page_that_fits_stays_as_it_is() -> None:
    """Line by line as it was written."""
    assert wrap_epilogue(PAGE, 100) == PAGE


def test_prose_is_wrapped_from_its_first_line_to_its_last() -> None:
    """No line of two words stands between full ones."""
    assert wrap_epilogue(PAGE, 60).splitlines()[:3] == [
        "Shows the difference and writes nothing, until --write is",
        "given. Values that belong to other entries are hidden in it.",
        "",
    ]


def test_a_remark_goes_below_its_command_and_no_command_is_broken() -> None:
    """Both keep an indentation that tells them apart."""
    assert wrap_epilogue(PAGE, 60).partition("Examples:\n")[2].splitlines() == [
        "  mcpproxy connect",
        "      the clients known, and which are connected",
        "  mcpproxy connect cursor --write",
        "  mcpproxy connect a-client-with-a-name-that-is-longer-than-any-line-of-this-page --write",
    ]


def test_a_remark_is_wrapped_too() -> None:
    """At its own indentation."""
    lines = wrap_epilogue(PAGE, 40).partition("Examples:\n")[2].splitlines()
    assert lines[1:3] == ["      the clients known, and which are", "      connected"]


def test_prose_around_an_example_is_no_example() -> None:
    """Lines without indentation are joined, those with it are not."""
    text = "Write a query on each line:\n  {one: 1}\n  {two: 2}\nand nothing besides in the file."
    assert wrap_epilogue(text, 20).splitlines() == [
        "Write a query on",
        "each line:",
        "  {one: 1}",
        "  {two: 2}",
        "and nothing besides",
        "in the file.",
    ]
