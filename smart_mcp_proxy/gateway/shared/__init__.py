"""Values and small parts that several of the gateway's rooms use."""
