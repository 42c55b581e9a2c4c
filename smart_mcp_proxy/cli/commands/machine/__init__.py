"""Commands about this machine: services, shells, a word for systems that are not supported."""
