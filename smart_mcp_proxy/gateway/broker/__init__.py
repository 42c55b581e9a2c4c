"""Calls by any program over plain HTTP, without the protocol."""
