"""The commands, one noun a module."""
