"""Vectors from a service on the network: what is sent, what is accepted, when it is asked again."""

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from embedding_fakes import DIMENSION, Answer, EmbeddingService, Reply, failing, rows_of, vector_of, with_rows

from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.search.embedders.openai import OpenAiEmbedder

KEY = "sk-secret"
TEXTS = ["read a file", "banana", "a"]


class Waits(list[float]):
    """The waits between attempts, none of which is waited."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def opened(service: EmbeddingService, *answers: Answer, waits: Waits | None = None) -> OpenAiEmbedder:
    """An embedder at the service, which after the first question gives these answers."""
    embedder = OpenAiEmbedder("m-small", KEY, service.url, query_timeout_s=5, sleep=Waits() if waits is None else waits)
    service.requests.clear()
    service.answers += answers
    return embedder


def unit(text: str) -> np.ndarray[Any, Any]:
    """The expected vector of a text."""
    vector = np.array(vector_of(text))
    return vector / np.linalg.norm(vector)


def inputs(service: EmbeddingService) -> list[list[str]]:
    """The texts of every request."""
    return [request.body["input"] for request in service.requests]


def without(rows: Callable[[list[Any]], Any]) -> Answer:
    """An answer whose rows went through `rows`."""
    return with_rows(lambda texts: rows(rows_of(texts)))


def test_opening_asks_for_the_dimension_and_names_service_model_and_dimension(service: EmbeddingService) -> None:
    """One request with the key, the model and a text; the id holds no secret."""
    embedder = OpenAiEmbedder("m-small", KEY, service.url.replace("//", "//user:secret@"))
    assert embedder.dimension == DIMENSION
    assert embedder.id == f"openai:{service.url[7:-3]}:m-small:{DIMENSION}"
    [request] = service.requests
    assert request.path == "/v1/embeddings"
    assert request.body["model"] == "m-small"


def test_vectors_have_unit_length_and_stand_in_the_order_of_the_texts(service: EmbeddingService) -> None:
    """The rows of a reply are taken by their index, however they are ordered."""
    embedder = opened(service, without(lambda rows: rows[::-1]))
    vectors = embedder.embed(TEXTS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [unit(text) for text in TEXTS], atol=1e-6)
    assert service.requests[0].authorization == f"Bearer {KEY}"


def test_a_query_has_the_vector_of_its_text(service: EmbeddingService) -> None:
    """One text, one vector of one axis."""
    np.testing.assert_allclose(opened(service).embed_query("banana"), unit("banana"), atol=1e-6)


def test_no_texts_are_no_request(service: EmbeddingService) -> None:
    """An empty list gives an empty matrix."""
    assert opened(service).embed([]).shape == (0, DIMENSION)
    assert service.requests == []


def test_many_texts_are_sent_in_requests_that_the_service_takes(service: EmbeddingService) -> None:
    """At most 256 texts and 300,000 bytes each, and every vector stays with its text."""
    texts = [f"{at:a>4}" for at in range(600)] + ["é" * 4_000] * 60
    vectors = opened(service).embed(texts)
    assert all(len(batch) <= 256 and sum(len(text.encode()) for text in batch) <= 300_000 for batch in inputs(service))
    assert len(service.requests) == 4
    np.testing.assert_allclose(vectors[599], unit(texts[599]), atol=1e-6)


@pytest.mark.parametrize(
    ("text", "sent"),
    [("", " "), ("\ud800 x", "? x"), ("語" * 4_000, "語" * 2_730), ("x" * 4_000, "x" * 4_000), ("🦊\x00", "🦊\x00")],
)
def test_any_text_is_made_acceptable(service: EmbeddingService, text: str, sent: str) -> None:
    """Never empty, never more than 8,191 bytes, and encodable."""
    opened(service).embed([text])
    assert inputs(service) == [[sent]]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (without(lambda rows: rows[:-1]), "2 vectors that do not belong to the 3 texts"),
        (without(lambda rows: [*rows, rows[0]]), "4 vectors that do not belong to the 3 texts"),
        (without(lambda rows: [{**row, "index": 0} for row in rows]), "do not belong to the 3 texts"),
        (without(lambda rows: [{**row, "embedding": row["embedding"] * 2} for row in rows]), "8 numbers, before of 4"),
        (without(lambda rows: [{**row, "embedding": [1.0] * (row["index"] + 1)} for row in rows]), "different lengths"),
        (without(lambda rows: [{**row, "embedding": [0.0] * DIMENSION} for row in rows]), "all zeros"),
        (without(lambda rows: [{**row, "embedding": []} for row in rows]), "all zeros"),
        (
            without(lambda rows: [{**row, "embedding": [float("nan")] * DIMENSION} for row in rows]),
            "no list of vectors",
        ),
        (without(lambda rows: [{**row, "embedding": [None] * DIMENSION} for row in rows]), "no list of vectors"),
        (without(lambda rows: [{**row, "embedding": "AAAA"} for row in rows]), "no list of vectors"),
        (without(lambda rows: {}), "no list of vectors"),
        (lambda texts: Reply(body=b"<html>hello</html>"), "no list of vectors"),
        (lambda texts: Reply(body=b""), "no list of vectors"),
    ],
)
def test_an_answer_that_is_no_such_matrix_is_an_error(
    service: EmbeddingService, answer: Answer, complaint: str
) -> None:
    """Nothing wrong enters the index, and the same question is not asked again."""
    embedder = opened(service, answer)
    with pytest.raises(EmbeddingError, match=complaint) as caught:
        embedder.embed(TEXTS)
    assert caught.value.retry_after_s is None
    assert "MCPPROXY_OPENAI_MODEL" in caught.value.hint
    assert len(service.requests) == 1


def test_huge_and_tiny_numbers_are_scaled_without_overflow(service: EmbeddingService) -> None:
    """What a double holds comes out as a direction."""
    embedder = opened(service, without(lambda rows: [{**row, "embedding": [3e300, 4e300, 0, 0]} for row in rows]))
    np.testing.assert_allclose(embedder.embed(["x"])[0], [0.6, 0.8, 0, 0], atol=1e-6)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_names_the_variable_and_is_not_tried_again(service: EmbeddingService, status: int) -> None:
    """The next step is in the hint."""
    service.answers.append(failing(status, "invalid_api_key"))
    with pytest.raises(EmbeddingError, match=f"refuses the key \\(HTTP {status}, invalid_api_key\\)") as caught:
        OpenAiEmbedder("m-small", KEY, service.url)
    assert "OPENAI_API_KEY" in caught.value.hint
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [failing(401, "sk-secret"), failing(429), failing(500), failing(404, "model_not_found"), without(lambda rows: {})],
)
def test_the_key_is_in_no_error(service: EmbeddingService, answer: Answer) -> None:
    """Neither in the message nor anywhere in what a log would print of it, even if the service repeats it."""
    embedder = opened(service, *[answer] * 4)
    with pytest.raises(EmbeddingError) as caught:
        embedder.embed(TEXTS)
    printed = "".join(traceback.format_exception(caught.value)) + repr(caught.value.to_dict()) + repr(embedder)
    assert KEY not in printed


@pytest.mark.parametrize(("status", "code"), [(404, "model_not_found"), (400, None), (429, "insufficient_quota")])
def test_what_waiting_does_not_cure_is_not_tried_again(
    service: EmbeddingService, status: int, code: str | None
) -> None:
    """An unknown model, a bad request, an empty account."""
    embedder = opened(service, failing(status, code))
    with pytest.raises(EmbeddingError, match="'m-small'") as caught:
        embedder.embed(TEXTS)
    assert caught.value.retry_after_s is None
    assert len(service.requests) == 1


def test_a_busy_service_is_asked_again_after_the_time_it_names(service: EmbeddingService) -> None:
    """429 with Retry-After, then broken for a moment, then fine: the vectors come."""
    waits = Waits()
    embedder = opened(service, failing(429, retry_after="7"), failing(500), failing(503, retry_after="x"), waits=waits)
    assert embedder.embed(TEXTS).shape == (3, DIMENSION)
    assert waits == [7, 2, 4]
    assert inputs(service) == [TEXTS] * 4


def test_after_four_attempts_the_failure_is_told(service: EmbeddingService) -> None:
    """With the time after which to try again."""
    embedder = opened(service, *[failing(500)] * 4)
    with pytest.raises(EmbeddingError, match="busy or broken") as caught:
        embedder.embed(TEXTS)
    assert caught.value.retry_after_s == 1
    assert len(service.requests) == 4


def test_a_service_that_asks_for_a_long_pause_gets_it_from_the_caller(service: EmbeddingService) -> None:
    """No thread sleeps for minutes."""
    waits = Waits()
    embedder = opened(service, failing(429, retry_after="300"), waits=waits)
    with pytest.raises(EmbeddingError) as caught:
        embedder.embed(TEXTS)
    assert (waits, caught.value.retry_after_s) == ([], 300)


def test_a_query_does_not_wait_for_a_busy_service(service: EmbeddingService) -> None:
    """One attempt."""
    waits = Waits()
    embedder = opened(service, failing(429, retry_after="1"), waits=waits)
    with pytest.raises(EmbeddingError, match="HTTP 429"):
        embedder.embed_query("x")
    assert (waits, len(service.requests)) == ([], 1)


def test_a_query_does_not_wait_for_a_silent_service(service: EmbeddingService) -> None:
    """Its deadline is short, and the error says so."""
    embedder = OpenAiEmbedder("m-small", KEY, service.url, query_timeout_s=0.05)
    service.may_answer.clear()
    with pytest.raises(EmbeddingError, match=r"did not answer within 0\.05 s"):
        embedder.embed_query("x")


@pytest.mark.parametrize("part", ["status", "headers"])
def test_a_query_does_not_wait_for_an_answer_that_drips(service: EmbeddingService, part: Any) -> None:
    """A byte now and then buys no time; the connection is closed at the deadline, and the next query has another."""
    embedder = OpenAiEmbedder("m-small", KEY, service.url, query_timeout_s=0.3)
    service.answers.append(lambda texts: Reply(drips_from=part))
    with pytest.raises(EmbeddingError, match=r"did not answer within 0\.3 s") as caught:
        embedder.embed_query("x")
    assert caught.value.retry_after_s == 1
    assert service.was_left.wait(10)
    patient = OpenAiEmbedder("m-small", KEY, service.url, query_timeout_s=30)
    np.testing.assert_allclose(patient.embed_query("x"), unit("x"), atol=1e-6)


def test_a_batch_has_a_deadline_for_all_its_attempts(service: EmbeddingService) -> None:
    """An answer that drips ends with it, and what is left is no reason to begin again."""
    waits = Waits()
    embedder = OpenAiEmbedder("m-small", KEY, service.url, indexing_timeout_s=1, sleep=waits)
    service.requests.clear()
    service.answers.append(lambda texts: Reply(drips_from="headers"))
    with pytest.raises(EmbeddingError, match="did not answer within 1 s"):
        embedder.embed(TEXTS)
    assert (waits, len(service.requests)) == ([], 1)
    assert service.was_left.wait(10)


@pytest.mark.parametrize(
    ("retry_after", "asked_s"),
    [
        ("Sun, 06 Nov 1994 08:49:45 GMT", 8),
        ("Sun, 06 Nov 1994 08:49:00 GMT", 0),
        ("Mon, 06 Nov 2094 08:49:37 GMT", 3_600),
        ("999999", 3_600),
        ("soon", 1),
    ],
)
def test_a_service_may_name_the_time_to_come_back(service: EmbeddingService, retry_after: str, asked_s: float) -> None:
    """As a date or in seconds; an hour at the most, for a clock may be wrong."""
    embedder = OpenAiEmbedder("m-small", KEY, service.url, query_timeout_s=30, now=lambda: 784_111_777.0)
    service.answers.append(failing(429, retry_after=retry_after))
    with pytest.raises(EmbeddingError, match="HTTP 429") as caught:
        embedder.embed_query("x")
    assert caught.value.retry_after_s == asked_s


def test_two_deployments_on_one_host_have_two_ids(service: EmbeddingService) -> None:
    """The path tells them apart without being shown; a slash at its end, a query and a password do not matter."""
    host = service.url.removesuffix("/v1")

    def id_at(address: str) -> str:
        return OpenAiEmbedder("m-small", KEY, address).id

    usual, one, other = id_at(f"{host}/v1"), id_at(f"{host}/deployments/s3cret/v1"), id_at(f"{host}/deployments/b/v1")
    assert len({usual, one, other}) == 3
    assert "s3cret" not in one
    assert id_at(f"{host}/v1/?key=1".replace("//", "//user:secret@", 1)) == usual


def test_a_service_that_is_not_there_is_asked_again_and_then_told() -> None:
    """The address is named, as nobody listens at it."""
    waits = Waits()
    with pytest.raises(EmbeddingError, match=r"127\.0\.0\.1:1 cannot be reached"):
        OpenAiEmbedder("m-small", KEY, "http://127.0.0.1:1/v1", sleep=waits)
    assert waits == [1, 2, 4]


@pytest.mark.parametrize("url", ["localhost:8000", "", "ftp://x/v1", "http://", "http://a b/"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """Before anything is sent."""
    with pytest.raises(EmbeddingError, match="OPENAI_BASE_URL"):
        OpenAiEmbedder("m-small", KEY, url)
