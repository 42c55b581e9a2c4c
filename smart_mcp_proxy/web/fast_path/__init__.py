"""The fast path: usual requests answered without the SDK."""
