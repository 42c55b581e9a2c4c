"""First answers over stdio while the gateway is being loaded; imports nothing slow."""
