"""How the best rows of many are found."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.search.engines.bm25f import top_rows


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([0, 3, 1_000, 4_096, 4_097, 30_000]),
    st.integers(1, 200),
    st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    st.integers(1, 1_000),
    st.integers(0, 99),
)
def test_the_best_rows_are_those_that_sorting_would_give(
    size: int, depth: int, share: float, levels: int, seed: int
) -> None:
    """Few or many rows, rare or frequent, with many equal scores or few: all ties of the last one included."""
    random = np.random.default_rng(seed)
    scores = np.where(random.random(size) < share, random.integers(1, levels + 1, size), 0).astype(np.float32)
    ids = random.permutation(size).astype(np.int64)
    order = np.lexsort((ids, -scores))
    order = order[scores[order] > 0]
    if len(order) > depth:
        order = order[scores[order] >= scores[order[depth - 1]]]
    assert top_rows(scores, ids, depth).tolist() == order.tolist()
