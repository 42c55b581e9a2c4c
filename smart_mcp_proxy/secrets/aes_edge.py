"""AES-GCM, loaded when something is sealed: it takes 6 MB, and few gateways seal anything."""


def encrypt(key: bytes, nonce: bytes, text: bytes, purpose: bytes) -> bytes:
    """Encrypt a text; with another purpose it cannot be opened."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key).encrypt(nonce, text, purpose)


def decrypt(key: bytes, nonce: bytes, box: bytes, purpose: bytes) -> bytes:
    """Decrypt what `encrypt` made.

    Raises:
        ValueError: It was encrypted otherwise, or is damaged.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(nonce, box, purpose)
    except InvalidTag as exc:
        raise ValueError("it was encrypted otherwise, or is damaged") from exc
