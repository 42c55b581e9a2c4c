"""The gateway described for those who look for it: server cards, their catalog, and a registry's API."""
