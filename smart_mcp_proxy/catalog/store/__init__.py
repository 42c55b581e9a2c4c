"""The catalog stored: the SQLite file, and memory where it cannot be written."""
