"""The HTTP server below the endpoints."""
