"""Certificates of a run: exactly for the host, short-lived, and good for the strictest of readers."""

import datetime as dt
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.interception import authority
from agentwrap.gateway.interception.authority import Authority

LONG = ".".join(["a" * 60, "b" * 60, "c" * 60, "example"])
HOSTS = ["api.example", "xn--bcher-kva.example", "192.0.2.1", "2001:db8::1", LONG, "a_b.example"]
own = Authority("4f2a9c")
AUTHORITY = x509.load_pem_x509_certificate(own.pem)


def shake(context: ssl.SSLContext, host: str, trusted: ssl.SSLContext) -> dict[str, object]:
    """A handshake of Python's own client with the server's side; what it says of the certificate."""
    near, far = socket.socketpair()
    near.settimeout(300)
    far.settimeout(300)

    def serve() -> None:
        try:
            context.wrap_socket(far, server_side=True).close()
        except ssl.SSLError:
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with trusted.wrap_socket(near, server_hostname=host) as inner:
            return dict(inner.getpeercert() or {})
    finally:
        near.close()
        thread.join()
        far.close()


@pytest.mark.parametrize("host", HOSTS)
def test_a_strict_verifier_takes_it_for_its_host_and_no_other(host: str) -> None:
    trusted = ssl.create_default_context(cadata=own.pem.decode())
    trusted.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    assert shake(own.context(host), host, trusted)["subjectAltName"]
    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|not valid for"):
        shake(own.context(host), "other.example", trusted)


@pytest.mark.parametrize("host", [host for host in HOSTS if "_" not in host])
def test_a_second_verifier_with_the_rules_of_browsers_takes_it_too(host: str) -> None:
    """The rules of the CA/Browser forum, in Rust: among others, an authority key identifier and no odd extensions."""
    try:
        subject: verification.Subject = x509.IPAddress(authority.ip_address(host))
    except ValueError:
        subject = x509.DNSName(host)
    store = verification.Store([AUTHORITY])
    verifier = verification.PolicyBuilder().store(store).build_server_verifier(subject)
    leaf = own.leaf(host)
    assert verifier.verify(leaf, []) == [leaf, AUTHORITY]


def test_a_certificate_has_the_name_and_nothing_else() -> None:
    for host in HOSTS:
        names = own.leaf(host).extensions.get_extension_for_class(x509.SubjectAlternativeName)
        assert [str(name.value) for name in names.value] == [host]
        assert names.critical == (not own.leaf(host).subject.rdns)


def test_the_authority_can_make_no_other_authority_and_says_which_run_it_is_of() -> None:
    limits = AUTHORITY.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.value, limits.critical) == (x509.BasicConstraints(ca=True, path_length=0), True)
    usage = AUTHORITY.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature
    assert AUTHORITY.subject.rfc4514_string() == "CN=agentwrap run 4f2a9c,O=agentwrap"
    leaf = own.leaf("a.example")
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.SERVER_AUTH
    ]


def test_it_begins_a_day_ago_and_ends_with_the_authority() -> None:
    now = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    made = Authority("x", now)
    above = x509.load_pem_x509_certificate(made.pem)
    leaf = made.leaf("a.example")
    assert above.not_valid_before_utc == leaf.not_valid_before_utc == now - dt.timedelta(days=1)
    assert leaf.not_valid_after_utc == above.not_valid_after_utc == now + dt.timedelta(days=29)


def test_two_runs_share_nothing() -> None:
    other = x509.load_pem_x509_certificate(Authority("4f2a9c").pem)
    assert other.public_key() != AUTHORITY.public_key()
    assert other.serial_number != AUTHORITY.serial_number
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(own.context("a.example"), "a.example", ssl.create_default_context(cadata=Authority("y").pem.decode()))


def test_a_context_is_made_once_and_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority, "CACHED", 2)
    made = Authority("x")
    first = made.context("a.example")
    assert made.context("a.example") is first
    made.context("b.example")
    made.context("a.example")
    made.context("c.example")
    assert made.context("a.example") is first


def test_no_key_is_in_what_is_given_out() -> None:
    assert b"PRIVATE" not in own.pem
    assert own.pem.count(b"BEGIN CERTIFICATE") == 1


@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z]{1,10}){1,4}", fullmatch=True))
def test_any_name_gets_a_certificate(name: str) -> None:
    names = own.leaf(name).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == [name]


def test_openssl_is_content_with_the_strictest_look(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(own.pem)
    (tmp_path / "leaf.pem").write_bytes(own.leaf("a.example").public_bytes(serialization.Encoding.PEM))
    try:
        told = subprocess.run(
            ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "a.example",
             "-CAfile", "ca.pem", "leaf.pem"],
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    assert told.stdout == "leaf.pem: OK\n", told.stderr


def test_a_run_that_reads_nothing_loads_nothing_for_it() -> None:
    code = "import sys, agentwrap.gateway.service; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
