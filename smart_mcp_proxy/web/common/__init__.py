"""Parts that all HTTP endpoints use."""
