"""A certificate authority for one run: its key never leaves this process, its certificates end with it (RFC 5280).

Knows names and keys. Refuses to know which hosts it is used for, and to write anything to a disk.
"""

import datetime as dt
import os
from collections import OrderedDict
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from agentwrap.gateway.interception import certificates

if TYPE_CHECKING:
    import ssl  # loaded when the first connection is ended here: the authority is made before the command begins

CACHED = 256
_BEFORE = dt.timedelta(days=1)  # clocks of machines and containers differ
_DAYS = 30
_NAME_MAX = 64  # RFC 5280, ub-common-name
_SERIAL_BITS = 159  # positive in 20 bytes (RFC 5280, 4.1.2.2)


class _Key:
    """A private key, and what is said of it. It never leaves this process."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        numbers = self._private.public_key().public_numbers()
        self.public = certificates.point(numbers.x, numbers.y)
        self.identifier = certificates.identifier(self.public)

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data, ec.ECDSA(hashes.SHA256()))

    def pem(self) -> bytes:
        secret = self._private.private_numbers().private_value
        return certificates.pem("EC PRIVATE KEY", certificates.private_key(secret, self.public))


class Authority:
    """The authority of run `run_id`, and the server's side of TLS for any name. Not for several threads."""

    def __init__(self, run_id: str, now: dt.datetime | None = None) -> None:
        start = (now or dt.datetime.now(dt.UTC)).replace(microsecond=0) - _BEFORE
        self._valid = (start, start + dt.timedelta(days=_DAYS))
        self._key, self._leaf_key = _Key(), _Key()
        self._name = certificates.name(organization="agentwrap", common_name=f"agentwrap run {run_id}"[:_NAME_MAX])
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()
        self.pem = certificates.pem("CERTIFICATE", self._own())

    def context(self, host: str) -> "ssl.SSLContext":
        """A server's TLS as `host` (a name or an address in normal form). Made once. Raises ValueError for no host."""
        found = self._contexts.get(host)
        if found is None:
            found = self._contexts[host] = _server(self._files(host))
            if len(self._contexts) > CACHED:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(host)
        return found

    def leaf(self, host: str) -> bytes:
        """A certificate for exactly this host, in DER. Raises ValueError for what can be no host."""
        if not host:
            raise ValueError("no host has an empty name")
        short = len(host) <= _NAME_MAX
        return self._signed(
            certificates.name(common_name=host if short else ""),
            self._leaf_key,
            certificates.basic_constraints(authority=False),
            certificates.key_usage(authority=False),
            certificates.for_servers(),
            # Critical where the subject is empty (RFC 5280, 4.2.1.6).
            certificates.alternative_name(_general_name(host), critical=not short),
        )

    def _own(self) -> bytes:
        basic, usage = certificates.basic_constraints(authority=True), certificates.key_usage(authority=True)
        return self._signed(self._name, self._key, basic, usage)

    def _signed(self, subject: bytes, key: _Key, *extensions: bytes) -> bytes:
        held = (certificates.subject_key(key.identifier), certificates.authority_key(self._key.identifier))
        return certificates.certificate(
            subject,
            self._name,
            serial=int.from_bytes(os.urandom(20), "big") >> (160 - _SERIAL_BITS),
            valid=self._valid,
            public=key.public,
            extensions=(*extensions, *held),
            sign=self._key.sign,
        )

    def _files(self, host: str) -> bytes:
        """Key and certificates as `load_cert_chain` reads them. The authority's own goes along: pins may be on it."""
        return self._leaf_key.pem() + certificates.pem("CERTIFICATE", self.leaf(host)) + self.pem


def _general_name(host: str) -> str | IPv4Address | IPv6Address:
    try:
        return ip_address(host)
    except ValueError:
        return host


def _server(files: bytes) -> "ssl.SSLContext":
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # No tickets: one that is sent to a client which has ended already would reset what is on its way to it.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    _load(context, files)
    return context


def _load(context: "ssl.SSLContext", files: bytes) -> None:
    """`load_cert_chain` reads files alone: this one is in memory, and nobody else's."""
    descriptor = os.memfd_create("aw-leaf", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(files)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
