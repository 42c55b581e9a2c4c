"""Damaged, locked and full SQLite files, and the guard against lost approvals."""
