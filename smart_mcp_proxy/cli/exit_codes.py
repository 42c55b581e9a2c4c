"""Exit codes that more than one place gives."""

__all__ = ["EXIT_INTERRUPTED"]

EXIT_INTERRUPTED = 130
"""Source: contract.md, exit codes."""
