"""Key pairs that sign tokens, each read once: to read a private key takes a tenth of a second, at each token."""

from functools import cache

from fastmcp.server.auth.providers import jwt
from fastmcp.server.auth.providers.jwt import RSAKeyPair

__all__ = ["RSAKeyPair"]

jwt._import_key_for_algorithm = cache(jwt._import_key_for_algorithm)
