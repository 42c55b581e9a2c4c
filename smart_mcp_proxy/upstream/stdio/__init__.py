"""Sessions with servers that run as child processes."""
