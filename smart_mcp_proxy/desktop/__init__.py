"""Way of a client into the gateway that all of a user share; imports nothing slow."""
