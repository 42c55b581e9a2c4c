"""The HTTP broker: any method of one server by one POST, with the gateway's own credentials for it."""
