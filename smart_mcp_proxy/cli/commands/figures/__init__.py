"""Commands that show figures."""
