"""Way of a client on stdio to a gateway over HTTP, by the standard library alone."""
