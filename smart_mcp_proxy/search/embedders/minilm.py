"""Edge of the extra `minilm`: all-MiniLM-L6-v2 and models built like it, on ONNX runtime."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.search.embedders.bert import BertShape, bert_model, find_tensors
from smart_mcp_proxy.search.embedders.snapshot import WEIGHTS, build_damage_error, read_json, verify_revision
from smart_mcp_proxy.search.embedding import encodable

_BATCH_TOKENS = 512
"""Texts are run together up to this many tokens, padding included: larger batches leave the cache (measured), and a
search that waits for the cores behind one batch waits for a short one."""
_FATAL = 4
"""Severity from which on ONNX runtime logs to stderr; what it raises says the same."""


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
    pooling = _list_pooling_modes(read_json(folder / modules[1].path / "config.json", dict[str, Any]))
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


def _list_pooling_modes(config: Mapping[str, Any]) -> list[str]:
    """List the modes that are on in the pooling module's config.json, of its older or its newer form."""
    if mode := config.get("pooling_mode"):
        return [mode] if isinstance(mode, str) else mode
    flags = (name for name, is_on in config.items() if is_on is True)
    return [name.split("_")[2] for name in flags if name.startswith("pooling_mode_")]


def _require(folder: Path, what: str, found: object, needed: object) -> None:
    if found != needed:
        raise EmbeddingError(
            f"The model in {folder} does not run without torch: its {what} is {found!r}, expected {needed!r}.",
            hint="Install what runs it: pip install sentence-transformers. Or set MCPPROXY_HF_MODEL to another model.",
        )


class MiniLmEmbedder:
    """Turns text into the vectors that sentence-transformers computes from the same files, to 1e-5.

    Args:
        folder: The snapshot: weights, tokenizer and configuration.
        model: The name it was asked for by; part of the id, and decides which weights are right.

    Raises:
        EmbeddingError: The snapshot is damaged, or of a kind that needs torch.
    """

    def __init__(self, folder: Path, model: str) -> None:
        # Newer releases than the extra installs report their use to their maker and keep files in the home directory,
        # unless this stands in the environment before the import; servers are started with a chosen part of it.
        os.putenv("ORT_DISABLE_TELEMETRY", "1")
        # Imported on use: optional dependencies.
        import onnxruntime
        from tokenizers import Tokenizer

        self._recipe = read_recipe(folder)
        revision = verify_revision(folder, model)
        file = (folder / WEIGHTS).resolve()  # a link in the hub's cache
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # `embed` spreads whole batches over cores instead
        options.enable_mem_pattern = False  # it remembers a plan for each shape of a batch
        options.enable_cpu_mem_arena = False  # it keeps what the longest batch took, and is no faster
        options.log_severity_level = _FATAL
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(file.parent))
        tensors = find_tensors(folder / WEIGHTS)
        try:
            graph = bert_model(tensors, self._recipe.shape, file.name)
            self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
            self.dimension: int = self.pool([[0]]).shape[1]  # says whether the shapes fit
        except Exception as exc:  # the library raises nothing more precise
            raise build_damage_error(folder / WEIGHTS, f"it does not hold the model of config.json: {exc}") from exc
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as exc:  # likewise
            raise build_damage_error(folder / "tokenizer.json", str(exc)) from exc
        words = next(tensor for name, tensor in tensors.items() if name.endswith("word_embeddings.weight"))
        if self._tokenizer.get_vocab_size() > words.shape[0]:
            raise build_damage_error(folder / "tokenizer.json", "it knows more tokens than the model")
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self._recipe.max_tokens)
        self.id = f"hf:{model}:{revision}:{self.dimension}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of tools' texts, one row of unit length each, shape (len(texts), dimension)."""
        threads = max(1, (os.cpu_count() or 1) // 2)  # half of the cores: searches go on while tools are indexed
        return self._encode([self._recipe.document_prompt + text for text in texts], threads)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a query, of unit length, shape (dimension,)."""
        vector: NDArray[np.float32] = self.embed_queries([text])[0]
        return vector

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of queries, one row of unit length each, shape (len(texts), dimension)."""
        return self._encode([self._recipe.query_prompt + text for text in texts])

    def _encode(self, texts: Sequence[str], threads: int = 1) -> NDArray[np.float32]:
        """The vectors of texts in their order; `threads` batches are computed at the same time."""
        # One by one: the tokenizer's batches start threads of their own, which then warn at every fork.
        sequences = [self._tokenizer.encode(encodable(text)).ids for text in texts]
        vectors = np.empty((len(texts), self.dimension), np.float32)
        batches = list(_batches(sequences))

        def run(batch: Sequence[int]) -> None:
            vectors[batch] = self.pool([sequences[at] for at in batch])

        if threads == 1:
            for batch in batches:
                run(batch)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(run, batches))  # raises what one of them raised
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(vectors).all():
            raise EmbeddingError("The model answers numbers that are not finite.", hint="Install its files again.")
        return vectors

    def pool(self, sequences: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """The pooled vectors of token sequences, of any length, in one batch."""
        tokens = np.zeros((len(sequences), max(map(len, sequences))), np.int32)
        mask = np.zeros_like(tokens)
        for row, sequence in enumerate(sequences):
            tokens[row, : len(sequence)] = sequence
            mask[row, : len(sequence)] = 1
        pool = mask[:, np.newaxis].astype(np.float32)
        if self._recipe.shape.pooling == "cls":
            pool[:, :, 1:] = 0
        (pooled,) = self._session.run(["pooled"], {"tokens": tokens, "mask": mask, "pool": pool})
        vectors: NDArray[np.float32] = pooled[:, 0]
        return vectors


def _batches(sequences: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The places of sequences by length, in batches of as many tokens as one may have, or of one sequence."""
    batch: list[int] = []
    for at in sorted(range(len(sequences)), key=lambda at: len(sequences[at])):
        if batch and (len(batch) + 1) * len(sequences[at]) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch
