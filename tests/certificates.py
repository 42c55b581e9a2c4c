"""Certificates for servers on loopback, good and bad, made on the spot."""

import datetime
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority"]

LOOPBACK = "127.0.0.1"
USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class _Identity:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def write(self, path: Path) -> Path:
        """A PEM file with both."""
        pem = serialization.Encoding.PEM
        key = self.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path.write_bytes(key + self.certificate.public_bytes(pem))
        return path


class Authority:
    """Signs certificates; whoever trusts `file` trusts them.

    Args:
        directory: Where its files go.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._identity = _signed("test authority", None)
        self.file = self._identity.write(directory / "authority.pem")

    def context(self, kind: str) -> ssl.SSLContext:
        """What a server needs to speak TLS with a certificate of this kind: good, self-signed, expired, other-host."""
        issuer = None if kind == "self-signed" else self._identity
        host = "192.0.2.1" if kind == "other-host" else LOOPBACK
        identity = _signed(kind, issuer, host=host, is_expired=kind == "expired")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity.write(self._directory / f"{kind}.pem"))
        return context


def _signed(name: str, issuer: _Identity | None, *, host: str = "", is_expired: bool = False) -> _Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signing_key = issuer.key if issuer else key
    key_ids = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * DAY)
        .not_valid_after(now - DAY if is_expired else now + DAY)
        .add_extension(x509.BasicConstraints(ca=not host, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(key_ids, critical=False)
    )
    # From Python 3.13 on a certificate has to say what it may be used for.
    usage = ("digital_signature", "key_encipherment") if host else ("key_cert_sign", "crl_sign")
    builder = builder.add_extension(x509.KeyUsage(**{name: name in usage for name in USAGES}), critical=True)
    if host:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False)
    return _Identity(key, builder.sign(signing_key, hashes.SHA256()))
