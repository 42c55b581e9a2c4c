"""Exit codes that more than one place gives."""

EXIT_CONFIG = 2
"""The user's words, settings or files are at fault. Source: docs/design/wire-formats.md#exit-codes"""
EXIT_INTERRUPTED = 130
"""Source: docs/design/wire-formats.md#exit-codes"""
