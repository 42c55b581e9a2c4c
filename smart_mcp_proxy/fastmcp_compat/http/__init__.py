"""The libraries' HTTP transport."""
