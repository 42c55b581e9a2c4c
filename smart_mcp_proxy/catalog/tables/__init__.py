"""The SQL of the catalog, one noun a module."""
