"""Recipe of a snapshot: how its configuration files turn text into a vector."""

from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.search.embedders.bert import BertShape
from smart_mcp_proxy.search.embedders.snapshot import read_json


class Recipe(NamedTuple):
    """The steps by which a snapshot turns text into a vector.

    Attributes:
        shape: That of its encoder.
        max_tokens: Longer texts are cut there, the marks at both ends included.
        query_prompt: Stands before every query.
        document_prompt: Stands before every tool's text.
    """

    shape: BertShape
    max_tokens: int
    query_prompt: str
    document_prompt: str


class _Model(msgspec.Struct):
    """config.json."""

    model_type: str = ""
    hidden_act: str = ""
    position_embedding_type: str = "absolute"
    num_hidden_layers: int = 0
    num_attention_heads: int = 0
    layer_norm_eps: float = 0.0
    max_position_embeddings: int = 0


class _Module(msgspec.Struct):
    """An entry of modules.json."""

    type: str
    path: str


class _Pooling(msgspec.Struct):
    """The pooling module's config.json, in its older and its newer form."""

    pooling_mode: str | list[str] = ""
    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False

    def modes(self) -> list[str]:
        """The names of the modes that are on."""
        if self.pooling_mode:
            return [self.pooling_mode] if isinstance(self.pooling_mode, str) else self.pooling_mode
        flags = msgspec.structs.asdict(self)
        return [name.split("_")[2] for name, is_on in flags.items() if is_on is True]


class _Transformer(msgspec.Struct):
    """sentence_bert_config.json."""

    max_seq_length: int | None = None


class _Prompts(msgspec.Struct):
    """config_sentence_transformers.json."""

    prompts: dict[str, str] = {}


def read_recipe(folder: Path) -> Recipe:
    """The recipe of a snapshot that runs without torch: a BERT encoder with mean or first-token pooling.

    Raises:
        EmbeddingError: A file is missing or broken, or the model is of another kind.
    """
    model = read_json(folder / "config.json", _Model)
    modules = read_json(folder / "modules.json", list[_Module])
    kinds = [module.type.rpartition(".")[2] for module in modules]
    _require(folder, "architecture", f"{model.model_type} with {model.hidden_act}", "bert with gelu")
    _require(folder, "kind of positions", model.position_embedding_type, "absolute")
    _require(folder, "list of modules", [kind for kind in kinds if kind != "Normalize"], ["Transformer", "Pooling"])
    pooling = read_json(folder / modules[1].path / "config.json", _Pooling).modes()
    mode: Literal["mean", "cls"] = "cls" if pooling == ["cls"] else "mean"
    _require(folder, "pooling", pooling, [mode])
    length = read_json(folder / "sentence_bert_config.json", _Transformer, default=_Transformer())
    prompts = read_json(folder / "config_sentence_transformers.json", _Prompts, default=_Prompts()).prompts
    return Recipe(
        BertShape(model.num_hidden_layers, model.num_attention_heads, model.layer_norm_eps, mode),
        min(length.max_seq_length or model.max_position_embeddings, model.max_position_embeddings),
        prompts.get("query", ""),
        prompts.get("document", ""),
    )


def _require(folder: Path, what: str, found: object, needed: object) -> None:
    if found != needed:
        raise EmbeddingError(
            f"The model in {folder} does not run without torch: its {what} is {found!r}, expected {needed!r}.",
            hint="Install what runs it: pip install sentence-transformers. Or set MCPPROXY_HF_MODEL to another model.",
        )
