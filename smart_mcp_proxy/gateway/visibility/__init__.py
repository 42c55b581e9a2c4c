"""The view of the catalog that policy, configuration and profiles leave."""
