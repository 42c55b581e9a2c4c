"""Commands about servers and the configuration."""
