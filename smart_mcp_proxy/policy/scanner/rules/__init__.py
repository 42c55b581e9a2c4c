"""Phrases of attacks, and the filter that finds where they may stand."""
