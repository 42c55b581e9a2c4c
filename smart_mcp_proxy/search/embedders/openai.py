"""Asks OpenAI's embeddings service, or one that speaks like it. The one place that imports openai."""

import asyncio
import hashlib
import re
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.search.embedding import encodable

OPENAI_URL = "https://api.openai.com/v1"

_BATCH_TEXTS = 256
"""Texts a request, of the 2,048 that OpenAI takes: a retry repeats little, and a reply stays within some megabytes."""
_BATCH_BYTES = 300_000
_TEXT_BYTES = 8_191
"""A token is at least one byte of UTF-8, so that many bytes are never more tokens.

8,192 tokens a text, 300,000 a request. Source: https://platform.openai.com/docs/api-reference/embeddings/create
"""
_INDEXING_TIMEOUT_S = 60.0
"""For all attempts at one request together; whoever asked tries again later, with fewer texts."""
_QUERY_TIMEOUT_S = 3.0
"""An agent waits for a search; after that the words alone answer it."""
_ATTEMPTS = 4
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 10.0
"""More patience than this is the caller's affair: a sleeping thread cannot be stopped."""
_LONGEST_ASKED_S = 3_600.0
"""A service that names a later hour is asked again after this one all the same: its clock may be wrong, or ours."""

_REFUSED_STATUS = (401, 403)
_PASSING_STATUS = (408, 409, 429)
"""These and 5xx may go away by waiting.

Source: https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py"""
_QUOTA = "insufficient_quota"
"""The 429 of an account without money, which does not."""
_ERROR_CODE = r"[a-z_]{1,40}"
_SECONDS = r"\d{1,6}(\.\d+)?"
_USUAL_PATH = "/v1"
_PATH_DIGITS = 12

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for threads that wait no longer than they want to.

    A socket's own timeout starts again with every byte; a coroutine can be cancelled, which closes its connection.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def run_and_wait(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run `work` on the loop and wait for it; callable from any thread but the loop's.

        Raises:
            TimeoutError: It took longer than `timeout_s`, and was cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()  # nothing happens to what is done

    def close(self, last: Coroutine[Any, Any, object]) -> None:
        """Ends the thread after `last`; does not wait for it."""

        async def end() -> None:
            try:
                await last
            finally:
                self._loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self._loop)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Reply(msgspec.Struct):
    data: list[_Row]


class OpenAiEmbedder:
    """Turns text into vectors over the network. An error's `retry_after_s` is set where waiting may help.

    Args:
        model: Name of an embedding model of the service.
        api_key: Visible ASCII. Never shown in an error or in the id.
        base_url: The service, with the version in its path.
        query_timeout_s: How long a query may take in all, however slowly its answer comes.
        indexing_timeout_s: The same for one request of tools' texts, its further attempts included.
        sleep: Waits between two attempts, in seconds.
        now: Wall time in seconds since 1970, for services that name the time of day to come back at.

    Raises:
        EmbeddingError: The address is none, or the first request fails; it finds out the model's dimension.
    """

    def __init__(
        self,
        model: str,
        api_key: str,
        base_url: str = OPENAI_URL,
        *,
        query_timeout_s: float = _QUERY_TIMEOUT_S,
        indexing_timeout_s: float = _INDEXING_TIMEOUT_S,
        sleep: Callable[[float], object] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        # Imported on use: an optional dependency, and a second that other embedders need not pay.
        import openai

        if not re.fullmatch(r"https?://[!-~]+", base_url):
            raise EmbeddingError("OPENAI_BASE_URL is no http or https address.", hint=f"Example: {OPENAI_URL}")
        self._openai = openai
        self._client = client = openai.AsyncOpenAI(api_key=api_key, base_url=base_url, max_retries=0)
        self._thread = thread = LoopThread("embedding service")
        weakref.finalize(self, lambda: thread.close(client.close()))
        self._service = _service(base_url)
        self._model = model
        self._query_timeout_s = query_timeout_s
        self._indexing_timeout_s = indexing_timeout_s
        self._sleep = sleep
        self._now = now
        self.dimension = self._ask_patiently(["dimension"]).shape[1]
        self.id = f"{id_prefix(base_url)}{model}:{self.dimension}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of tools' texts, one row of unit length each, shape (len(texts), dimension).

        Raises:
            EmbeddingError: The service refuses, stays unavailable, or answers no such matrix.
        """
        vectors = np.empty((len(texts), self.dimension), np.float32)
        start = 0
        for batch in _batches(map(_sendable, texts)):
            stop = start + len(batch)
            vectors[start:stop] = self._of_my_dimension(self._ask_patiently(batch))
            start = stop
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a query, of unit length, shape (dimension,). Gives up at the first failure, or soon.

        Raises:
            EmbeddingError: As above.
        """
        vector: NDArray[np.float32] = self._of_my_dimension(self._ask([_sendable(text)], self._query_timeout_s))[0]
        return vector

    def _of_my_dimension(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        if vectors.shape[1] != self.dimension:
            raise self._bad_answer(f"vectors of {vectors.shape[1]} numbers, before of {self.dimension}")
        return vectors

    def _ask_patiently(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Like `_ask`, again after a wait where that may help and there is time for it."""
        deadline_s = time.monotonic() + self._indexing_timeout_s
        for attempt in range(_ATTEMPTS - 1):
            try:
                return self._ask(texts, deadline_s - time.monotonic())
            except EmbeddingError as exc:
                if exc.retry_after_s is None or exc.retry_after_s > _LONGEST_WAIT_S:
                    raise
                wait_s = max(exc.retry_after_s, _FIRST_WAIT_S * 2**attempt)
                if time.monotonic() + wait_s >= deadline_s:
                    raise
                self._sleep(wait_s)
        return self._ask(texts, deadline_s - time.monotonic())

    def _ask(self, texts: Sequence[str], timeout_s: float) -> NDArray[np.float32]:
        """Embed texts that fit a single request; returns unit rows in the order of the texts."""
        try:
            reply = self._thread.run_and_wait(self._reply(texts, timeout_s), timeout_s)
        # Nothing of what the service says is passed on or chained: some echo the key.
        except self._openai.APIStatusError as exc:
            raise self._refusal(exc.status_code, exc.code, exc.response.headers.get("retry-after")) from None
        except (TimeoutError, self._openai.APITimeoutError):
            raise self._unavailable(f"did not answer within {timeout_s:.3g} s") from None
        except self._openai.APIConnectionError as exc:
            raise self._unavailable(f"cannot be reached: {type(exc.__cause__).__name__}") from None
        try:
            rows = sorted(msgspec.json.decode(reply, type=_Reply).data, key=lambda row: row.index)
        except msgspec.DecodeError:
            raise self._bad_answer("no list of vectors") from None
        return self._unit_rows(rows, len(texts))

    async def _reply(self, texts: Sequence[str], timeout_s: float) -> bytes:
        reply = await self._client.embeddings.with_raw_response.create(
            input=list(texts), model=self._model, encoding_format="float", timeout=timeout_s
        )
        return reply.content

    def _unit_rows(self, rows: Sequence[_Row], count: int) -> NDArray[np.float32]:
        if [row.index for row in rows] != list(range(count)):
            raise self._bad_answer(f"{len(rows)} vectors that do not belong to the {count} texts sent one by one")
        if len({len(row.embedding) for row in rows}) != 1:
            raise self._bad_answer("vectors of different lengths")
        vectors = np.array([row.embedding for row in rows], np.float64)
        vectors /= np.maximum(np.abs(vectors).max(axis=1, keepdims=True, initial=0), np.finfo(np.float64).tiny)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise self._bad_answer("a vector that is all zeros or not finite")
        unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32)
        return unit

    def _refusal(self, status: int, code: str | None, retry_after: str | None) -> EmbeddingError:
        """Error for an HTTP status other than 2xx."""
        reason = f"HTTP {status}" + (f", {code}" if code and re.fullmatch(_ERROR_CODE, code) else "")
        if status in _REFUSED_STATUS:
            return EmbeddingError(
                f"{self._service} refuses the key ({reason}).", hint="Set OPENAI_API_KEY to a key that it accepts."
            )
        if (status in _PASSING_STATUS or status >= 500) and code != _QUOTA:
            return self._unavailable(f"is busy or broken ({reason})", self._parse_retry_after_s(retry_after or ""))
        return EmbeddingError(
            f"{self._service} does not embed with model {self._model!r} ({reason}).",
            hint="Check MCPPROXY_OPENAI_MODEL, OPENAI_BASE_URL and the account's plan.",
        )

    def _parse_retry_after_s(self, retry_after: str) -> float:
        """Seconds for which the service wants to be left alone, which it gives as a number or a date.

        Source: RFC 9110, section 10.2.3
        """
        if re.fullmatch(_SECONDS, retry_after):
            return min(float(retry_after), _LONGEST_ASKED_S)
        try:
            asked_s = parsedate_to_datetime(retry_after).timestamp() - self._now()
        except (ValueError, OverflowError):
            return _FIRST_WAIT_S
        return min(max(asked_s, 0.0), _LONGEST_ASKED_S)

    def _unavailable(self, problem: str, retry_after_s: float = _FIRST_WAIT_S) -> EmbeddingError:
        return EmbeddingError(
            f"{self._service} {problem}.",
            hint="Try again later, or check OPENAI_BASE_URL.",
            retry_after_s=retry_after_s,
        )

    def _bad_answer(self, what: str) -> EmbeddingError:
        return EmbeddingError(
            f"{self._service} answers {what}.", hint="Check that OPENAI_BASE_URL and MCPPROXY_OPENAI_MODEL are right."
        )


def id_prefix(base_url: str) -> str:
    """Common prefix of the ids of one service's embedders; the model's name follows."""
    return f"openai:{_service(base_url)}{_deployment(urlsplit(base_url).path)}:"


def _service(base_url: str) -> str:
    return urlsplit(base_url).netloc.rpartition("@")[2]


def _deployment(path: str) -> str:
    """Digest of the path that tells deployments on one host apart; it may hold a secret.

    Nothing for the usual path: what was stored before paths counted is still known.
    """
    path = path.rstrip("/")
    return "" if path == _USUAL_PATH else "/" + hashlib.sha256(path.encode()).hexdigest()[:_PATH_DIGITS]


def _sendable(text: str) -> str:
    """The text within the service's limits; it refuses an empty one."""
    return encodable(text).encode("utf-8")[:_TEXT_BYTES].decode("utf-8", "ignore") or " "


def _batches(texts: Iterator[str]) -> Iterator[list[str]]:
    """Cuts texts into requests that stay within the service's limits."""
    batch: list[str] = []
    size = 0
    for text in texts:
        text_size = len(text.encode("utf-8"))
        if len(batch) == _BATCH_TEXTS or size + text_size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += text_size
    if batch:
        yield batch
