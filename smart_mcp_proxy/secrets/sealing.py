"""Encryption of what gateways share in a store, under one key that is not in it."""

import base64
import hashlib
import hmac
import secrets
from typing import Final, Self

from smart_mcp_proxy.secrets.aes_edge import decrypt, encrypt
from smart_mcp_proxy.settings import Settings

_NONCE_BYTES: Final = 12
"""96 bits for GCM. Source: https://csrc.nist.gov/pubs/sp/800/38/d/final"""
_LABEL: Final = b"smart-mcp-proxy/secret-key/1"


class SealBrokenError(Exception):
    """A box was sealed under another key or for another purpose, or is damaged."""


def seal(key: bytes, data: bytes, purpose: bytes) -> bytes:
    """Encrypt `data`; it can be opened for the same purpose alone.

    Args:
        key: Of 32 bytes.
        data: What is kept.
        purpose: What and whose it is.
    """
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + encrypt(key, nonce, data, purpose)


def open_sealed(key: bytes, box: bytes, purpose: bytes) -> bytes:
    """Decrypt what `seal` made.

    Raises:
        SealBrokenError: It was sealed otherwise.
    """
    try:
        return decrypt(key, box[:_NONCE_BYTES], box[_NONCE_BYTES:], purpose)
    except ValueError as exc:
        raise SealBrokenError("it was sealed under another key, or is damaged") from exc


class SecretKey:
    """The one secret that all gateways on a store are given; every key and token they share comes from it.

    Args:
        text: As configured: long and random, in any form.
    """

    def __init__(self, text: str) -> None:
        self._root = hmac.digest(_LABEL, text.encode(), hashlib.sha256)

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """The key of all gateways on these settings' database; None without either."""
        if settings.database_url is None or settings.secret_key is None:
            return None
        return cls(settings.secret_key.get_secret_value())

    def __repr__(self) -> str:
        return "<SecretKey>"

    def key(self, purpose: str) -> bytes:
        """The key of 32 bytes for one purpose; it tells nothing of the others."""
        return hmac.digest(self._root, purpose.encode(), hashlib.sha256)

    def token(self, purpose: str) -> str:
        """The token for one purpose, of 43 characters that any header and address may hold."""
        return base64.urlsafe_b64encode(self.key(f"token {purpose}")).decode().rstrip("=")
