"""Parts that several commands use."""
