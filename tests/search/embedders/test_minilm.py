"""MiniLM without torch: the vectors are those of sentence-transformers, for any text."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from embedding_fakes import replace_file
from plain_bert import reference_vectors
from tokenizers import Tokenizer

from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.search.embedders.minilm import MiniLmEmbedder

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
PLACES = [0, 1, 2, 100, 200, 383]
# Components at PLACES as sentence-transformers 6.2.0 with torch 2.13.0 computes them.
FROM_TORCH = {
    "": [-0.118838, 0.048299, -0.002548, 0.035949, 0.037718, -0.015717],
    "read a file": [0.031711, 0.046593, -0.107872, 0.002026, 0.093285, 0.012292],
    "github. create issue. Create a new issue in a GitHub repository.": [
        -0.01158,
        -0.101311,
        -0.063932,
        -0.041193,
        0.037692,
        0.011583,
    ],
    "搜索文件": [-0.004218, 0.105043, 0.03873, 0.053423, 0.104718, 0.057564],
    "🦊 fox 👩\u200d👩\u200d👧": [0.00018, -0.052638, 0.070614, 0.052197, 0.093584, -0.027431],
    "Grüße aus Köln, naïve café": [0.029668, 0.050573, 0.012256, -0.045932, 0.114975, -0.018037],
    "word " * 1000: [-0.008124, -0.095586, -0.038673, -0.075985, -0.039012, 0.015241],
    "list\x00 my\n\topen\u200b pull requests!!": [-0.066934, -0.033821, 0.004338, 0.011241, 0.018582, 0.09549],
}


@pytest.mark.long  # much work for one test
def test_vectors_are_those_of_sentence_transformers(minilm: MiniLmEmbedder) -> None:
    """Empty, long, Chinese, emoji, accents, control characters: to 1e-5, all in one batch."""
    vectors = minilm.embed(list(FROM_TORCH))
    assert vectors.shape == (len(FROM_TORCH), 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors[:, PLACES], list(FROM_TORCH.values()), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("text", FROM_TORCH, ids=lambda text: text[:10])
def test_a_query_has_the_vector_of_the_same_text_among_others(minilm: MiniLmEmbedder, text: str) -> None:
    """Alone or in a batch makes no difference."""
    np.testing.assert_allclose(minilm.embed_query(text)[PLACES], FROM_TORCH[text], atol=1e-5)


def test_similar_meanings_lie_close(minilm: MiniLmEmbedder) -> None:
    """Cosines as sentence-transformers computes them."""
    mail, message, weather = minilm.embed(
        ["send an email", "mail a message to someone", "what is the weather tomorrow"]
    )
    assert mail @ message == pytest.approx(0.7127608, abs=1e-5)
    assert mail @ weather == pytest.approx(0.1008416, abs=1e-5)


def test_text_that_is_no_unicode_has_a_vector(minilm: MiniLmEmbedder) -> None:
    """A lone surrogate reads as a question mark."""
    np.testing.assert_allclose(minilm.embed_query("a \ud800 b"), minilm.embed_query("a ? b"), atol=1e-6)


@pytest.mark.long  # a third of a second of processor time
def test_what_stands_beyond_the_length_of_the_model_is_ignored(minilm: MiniLmEmbedder) -> None:
    """256 tokens, two of them marks."""
    long = "word " * 254
    np.testing.assert_allclose(minilm.embed_query(long + "fish"), minilm.embed_query(long), atol=1e-6)
    assert np.abs(minilm.embed_query("word " * 253 + "fish") - minilm.embed_query(long)).max() > 1e-3


def test_no_texts_are_an_empty_matrix(minilm: MiniLmEmbedder) -> None:
    """With as many columns as ever."""
    assert minilm.embed([]).shape == (0, 384)


def test_many_threads_may_ask_at_once(minilm: MiniLmEmbedder) -> None:
    """Each gets the vector of its own text."""
    texts = [f"tool number {at}" for at in range(24)]
    with ThreadPoolExecutor(4) as threads:
        asked = list(threads.map(minilm.embed_query, texts))
    np.testing.assert_allclose(asked, minilm.embed(texts), atol=1e-5)


@pytest.mark.long  # half a second of work and more
def test_many_batches_on_several_threads_keep_their_order(
    minilm: MiniLmEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine with many cores."""
    texts = [f"tool number {at}{' and another' * (at % 40)}" for at in range(60)]
    one_thread = minilm.embed(texts)
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    assert np.abs(minilm.embed(texts) - one_thread).max() <= 1e-6


@pytest.mark.long  # half a second of work and more
def test_vectors_are_those_of_a_plain_forward_pass(minilm: MiniLmEmbedder, model_files: Path) -> None:
    """To 1e-6, as were those that earlier versions stored under the same id."""
    tokenizer = Tokenizer.from_file(str(model_files / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(64)
    texts = [text[:60] for text in FROM_TORCH]
    plain = reference_vectors(model_files, [tokenizer.encode(text).ids for text in texts])
    assert np.abs(minilm.embed(texts) - plain).max() <= 1e-6


def test_the_id_names_model_weights_and_dimension(minilm: MiniLmEmbedder) -> None:
    """Vectors of other weights are never compared with these."""
    assert minilm.id == f"hf:{MODEL}:53aa51172d14:384"


def test_pooling_length_and_prompts_are_those_of_the_files(copied_files: Path) -> None:
    """First-token pooling, 8 tokens and prompts give what sentence-transformers 6.2.0 computes from the same files."""
    replace_file(copied_files / "1_Pooling/config.json", '{"pooling_mode": "cls"}')
    replace_file(copied_files / "sentence_bert_config.json", '{"max_seq_length": 8}')
    prompts = {"prompts": {"query": "query: "}}
    replace_file(copied_files / "config_sentence_transformers.json", json.dumps(prompts))
    embedder = MiniLmEmbedder(copied_files, str(copied_files))
    text = "read a file and then print all of its lines"
    document = [-0.016846, 0.041202, -0.064754, -0.008253, -0.007513, -0.010701]
    query = [0.001404, 0.022128, -0.037442, 0.038497, -0.010465, 0.018666]
    np.testing.assert_allclose(embedder.embed([text])[0][PLACES], document, atol=1e-5)
    np.testing.assert_allclose(embedder.embed_query(text)[PLACES], query, atol=1e-5)


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("config.json", None, "config.json cannot be used: it is missing"),
        ("config.json", "{", "config.json cannot be used"),
        ("config.json", '{"model_type": "mpnet", "hidden_act": "gelu"}', "architecture is 'mpnet with gelu'"),
        ("config.json", '{"model_type": "bert", "hidden_act": "relu"}', "architecture is 'bert with relu'"),
        ("modules.json", '[{"type": "x.Transformer", "path": ""}]', r"list of modules is \['Transformer'\]"),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}', r"pooling is \['max'\]"),
        ("1_Pooling/config.json", '{"pooling_mode": ["cls", "mean"]}', r"pooling is \['cls', 'mean'\]"),
        ("tokenizer.json", None, "tokenizer.json cannot be used"),
        ("tokenizer.json", "{}", "tokenizer.json cannot be used"),
        ("model.safetensors", None, "model.safetensors cannot be used: No such file"),
        ("model.safetensors", b"", "model.safetensors cannot be used"),
        ("model.safetensors", b"\x02\0\0\0\0\0\0\0{}", "does not hold the model of config.json: 'embeddings"),
    ],
)
def test_a_damaged_or_foreign_model_is_refused_with_the_reason(
    copied_files: Path, file: str, content: str | bytes | None, complaint: str
) -> None:
    """The file is named, and the next step is to get it again or to install torch."""
    if content is None:
        (copied_files / file).unlink()
    else:
        replace_file(copied_files / file, content)
    with pytest.raises(EmbeddingError, match=complaint) as caught:
        MiniLmEmbedder(copied_files, str(copied_files))
    assert "MCPPROXY_HF_MODEL" in caught.value.hint


@pytest.mark.parametrize("heads", [0, 7])
def test_shapes_that_do_not_fit_are_found_when_it_loads(copied_files: Path, heads: int) -> None:
    """Not at the first search."""
    config = json.loads((copied_files / "config.json").read_text())
    replace_file(copied_files / "config.json", json.dumps({**config, "num_attention_heads": heads}))
    with pytest.raises(EmbeddingError, match=r"does not hold the model of config\.json"):
        MiniLmEmbedder(copied_files, str(copied_files))


@pytest.mark.long  # a third of a second of processor time
def test_a_tokenizer_of_another_model_is_refused(copied_files: Path) -> None:
    """Its numbers would point outside of the model's words."""
    tokenizer = json.loads((copied_files / "tokenizer.json").read_text("utf-8"))
    tokenizer["model"]["vocab"]["newword"] = len(tokenizer["model"]["vocab"])
    replace_file(copied_files / "tokenizer.json", json.dumps(tokenizer))
    with pytest.raises(EmbeddingError, match="more tokens than the model"):
        MiniLmEmbedder(copied_files, str(copied_files))


@pytest.mark.long  # starts programs, a second of it
def test_the_runtime_reports_nothing_and_leaves_no_file(model_files: Path, tmp_path: Path) -> None:
    """Releases from 1.29 on keep a device's id and a file of events in the home directory, to be sent."""
    program = (
        "from pathlib import Path\n"
        "from smart_mcp_proxy.search.embedders.minilm import MiniLmEmbedder\n"
        f"MiniLmEmbedder(Path({str(model_files)!r}), {MODEL!r}).embed(['a', 'b c'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"HOME": str(tmp_path)}, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not list(tmp_path.rglob("*"))
