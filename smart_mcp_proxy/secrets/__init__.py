"""Keys and the keyring: where secrets are kept."""
