"""Parts of `scripts/bench_calls.py`."""
