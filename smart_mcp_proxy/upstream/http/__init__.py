"""Sessions with servers over HTTP."""
