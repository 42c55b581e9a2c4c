"""Vectors of tools in memory and beside the catalog."""
