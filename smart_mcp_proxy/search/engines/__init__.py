"""Engines: rank tools by words, by meaning, or by both."""
