"""Embedders and engines of other packages, found by entry point."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from smart_mcp_proxy.errors import ConfigError, MissingExtraError
from smart_mcp_proxy.gateway.engines import available, lexical_engine, list_missing_extras
from smart_mcp_proxy.plugins import ENGINES_GROUP, is_plugin, load_plugin
from smart_mcp_proxy.search.embedders import open_embedder
from smart_mcp_proxy.settings import Settings, load_settings

ENTRY_POINTS = """\
[smart_mcp_proxy.embedders]
ones = foreign_parts:Ones

[smart_mcp_proxy.engines]
foreign = foreign_parts:Foreign
gone = foreign_parts:Gone
absent = no_such_module_anywhere:Engine
"""
CODE = """\
import numpy as np
from smart_mcp_proxy.search import Bm25fEngine

class Ones:
    id, dimension = "foreign:ones", 2

    def __init__(self, settings, environ):
        self.word = environ["WORD"]

    def embed(self, texts):
        return np.array([[1, 0]] * len(texts), np.float32)

    def embed_query(self, text):
        return np.array([1, 0], np.float32)

class Foreign(Bm25fEngine):
    name = "foreign"
"""


@pytest.fixture(autouse=True)
def foreign_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with one embedder, and engines of which one can be loaded."""
    (tmp_path / "foreign_parts.py").write_text(CODE, "utf-8")
    info = tmp_path / "foreign_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-parts\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield


def test_a_setting_may_name_an_embedder_of_another_package() -> None:
    """It is made with settings and environment, and embeds."""
    settings = load_settings({"MCPPROXY_EMBEDDER": "ones"})
    embedder = open_embedder(settings, {"WORD": "w"})
    assert embedder.id.startswith("foreign:ones") and embedder.dimension == 2
    assert np.array_equal(embedder.embed_query("anything at all"), np.array([1, 0], np.float32))
    assert not list_missing_extras(settings, {"WORD": "w"})


def test_a_setting_may_name_an_engine_of_another_package() -> None:
    """It ranks instead of the builtin one."""
    assert lexical_engine(load_settings({"MCPPROXY_BM25_ENGINE": "foreign"})).name == "foreign"


@pytest.mark.parametrize("variable", ["MCPPROXY_EMBEDDER", "MCPPROXY_BM25_ENGINE"])
def test_a_name_that_nobody_offers_is_refused(variable: str) -> None:
    """Also that of a part of the other kind."""
    for name in ("nobody", "ones" if variable.endswith("ENGINE") else "foreign"):
        with pytest.raises(ConfigError, match=f"{variable} is '{name}'. Expected one of"):
            load_settings({variable: name})


@pytest.mark.parametrize("name", ["gone", "absent"])
def test_one_that_cannot_be_loaded_is_said_and_the_builtin_one_ranks(name: str) -> None:
    """As where an extra is missing; with MCPPROXY_STRICT the start is refused."""
    settings = load_settings({"MCPPROXY_BM25_ENGINE": name})
    chosen, reasons = available(settings, {})
    assert chosen.bm25_engine == "builtin" and f"'{name}' cannot be loaded" in reasons[0]
    with pytest.raises(MissingExtraError):
        available(Settings(bm25_engine=name, strict=True), {})


def test_what_nobody_offers_cannot_be_loaded() -> None:
    """The hint names the group."""
    assert not is_plugin(ENGINES_GROUP, "nobody")
    with pytest.raises(MissingExtraError, match="No installed package offers 'nobody'") as failure:
        load_plugin(ENGINES_GROUP, "nobody")
    assert ENGINES_GROUP in failure.value.hint
