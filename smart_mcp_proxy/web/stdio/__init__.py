"""The endpoint on stdin and stdout."""
