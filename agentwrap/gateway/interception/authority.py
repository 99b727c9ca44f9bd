"""A certificate authority for one run: its key never leaves this process, its certificates end with it (RFC 5280).

Knows names and keys. Refuses to know which hosts it is used for, and to write anything to a disk.
"""

import datetime as dt
import os
import ssl
from collections import OrderedDict
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CACHED = 256
_BEFORE = dt.timedelta(days=1)  # clocks of machines and containers differ
_DAYS = 30
_NAME_MAX = 64  # RFC 5280, ub-common-name
_NOT_CRITICAL, _CRITICAL = False, True


class Authority:
    """The authority of run `run_id`, and the server's side of TLS for any name. Not for several threads."""

    def __init__(self, run_id: str, now: dt.datetime | None = None) -> None:
        self._start = (now or dt.datetime.now(dt.UTC)).replace(microsecond=0) - _BEFORE
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "agentwrap"),
                x509.NameAttribute(NameOID.COMMON_NAME, f"agentwrap run {run_id}"[:_NAME_MAX]),
            ]
        )
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()
        self.pem = self._own().public_bytes(serialization.Encoding.PEM)

    def context(self, host: str) -> ssl.SSLContext:
        """A server's TLS as `host` (a name or an address in normal form). Made once. Raises ValueError for no host."""
        found = self._contexts.get(host)
        if found is None:
            found = self._contexts[host] = _server(self._files(host))
            if len(self._contexts) > CACHED:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(host)
        return found

    def leaf(self, host: str) -> x509.Certificate:
        """A certificate for exactly this host."""
        public = self._leaf_key.public_key()
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = self._builder(_subject(host), public)
        for extension, critical in (
            (x509.BasicConstraints(ca=False, path_length=None), _CRITICAL),
            (_usage(digital_signature=True), _CRITICAL),
            (usages, _NOT_CRITICAL),
            # Critical where the subject is empty (RFC 5280, 4.2.1.6).
            (x509.SubjectAlternativeName([_general_name(host)]), len(host) > _NAME_MAX),
            (x509.SubjectKeyIdentifier.from_public_key(public), _NOT_CRITICAL),
            (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier), _NOT_CRITICAL),
        ):
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())

    def _own(self) -> x509.Certificate:
        builder = self._builder(self._name, self._key.public_key())
        for extension, critical in (
            (x509.BasicConstraints(ca=True, path_length=0), _CRITICAL),
            (_usage(key_cert_sign=True, crl_sign=True), _CRITICAL),
            (self._identifier, _NOT_CRITICAL),
            (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier), _NOT_CRITICAL),
        ):
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())

    def _builder(self, subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._start)
            .not_valid_after(self._start + dt.timedelta(days=_DAYS))
        )

    def _files(self, host: str) -> bytes:
        """Key and certificates as `load_cert_chain` reads them. The authority's own goes along: pins may be on it."""
        key = self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return key + self.leaf(host).public_bytes(serialization.Encoding.PEM) + self.pem


def _subject(host: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)] if len(host) <= _NAME_MAX else [])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.ExtensionType:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _server(files: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # No tickets: one that is sent to a client which has ended already would reset what is on its way to it.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: bytes) -> None:
    """`load_cert_chain` reads files alone: this one is in memory, and nobody else's."""
    descriptor = os.memfd_create("aw-leaf", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(files)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
