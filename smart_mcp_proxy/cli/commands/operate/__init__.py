"""Commands that run and watch a gateway."""
