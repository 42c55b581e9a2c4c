"""Makes the helpers beside this file importable from the folders below."""
