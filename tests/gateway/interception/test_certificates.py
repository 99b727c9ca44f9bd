"""Our DER is byte for byte that of a library that has every form."""

import datetime as dt
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.interception import certificates

key = ec.generate_private_key(ec.SECP256R1())
numbers = key.public_key().public_numbers()
PUBLIC = certificates.point(numbers.x, numbers.y)
# Of the years 1970 to 2120: what is there in seconds.
moments = st.integers(86400, 4_733_510_400).map(lambda seconds: dt.datetime.fromtimestamp(seconds, dt.UTC))
serials = st.integers(1, (1 << 159) - 1)
names = st.from_regex(r"[a-z0-9_]{1,20}(\.[a-z]{1,9}){0,18}", fullmatch=True)
hosts = st.one_of(names, st.ip_addresses())


def sign(data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


def usage(**given: bool) -> x509.KeyUsage:
    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: given.get(name, False) for name in every})


def by_the_library(
    subject: x509.Name, serial: int, valid: tuple[dt.datetime, dt.datetime], extensions: list[tuple[object, bool]]
) -> x509.Certificate:
    builder = x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "somebody"),
                x509.NameAttribute(NameOID.COMMON_NAME, "a run of theirs"),
            ]
        ),
        public_key=key.public_key(),
        serial_number=serial,
        not_valid_before=valid[0],
        not_valid_after=valid[1],
    )
    for extension, critical in extensions:
        assert isinstance(extension, x509.ExtensionType)
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(key, hashes.SHA256())


def ours(subject: bytes, serial: int, valid: tuple[dt.datetime, dt.datetime], *extensions: bytes) -> x509.Certificate:
    issuer = certificates.name(organization="somebody", common_name="a run of theirs")
    return x509.load_der_x509_certificate(
        certificates.certificate(
            subject, issuer, serial=serial, valid=valid, public=PUBLIC, extensions=extensions, sign=sign
        )
    )


@given(hosts, serials, moments, moments)
def test_a_server(host: object, serial: int, one: dt.datetime, other: dt.datetime) -> None:
    valid = (min(one, other), max(one, other))
    held = certificates.identifier(PUBLIC)
    address = ip_address(str(host)) if not isinstance(host, str) else None
    common = str(host) if len(str(host)) <= 64 else ""
    made = ours(
        certificates.name(common_name=common),
        serial,
        valid,
        certificates.basic_constraints(authority=False),
        certificates.key_usage(authority=False),
        certificates.for_servers(),
        certificates.alternative_name(address or str(host), critical=not common),
        certificates.subject_key(held),
        certificates.authority_key(held),
    )
    mine = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    named = x509.IPAddress(address) if address is not None else x509.DNSName(str(host))
    theirs = by_the_library(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else []),
        serial,
        valid,
        [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (usage(digital_signature=True), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.SubjectAlternativeName([named]), not common),
            (mine, False),
            (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(mine), False),
        ],
    )
    assert made.tbs_certificate_bytes == theirs.tbs_certificate_bytes
    assert made.signature_algorithm_oid == theirs.signature_algorithm_oid
    key.public_key().verify(made.signature, made.tbs_certificate_bytes, ec.ECDSA(hashes.SHA256()))


def test_an_authority() -> None:
    valid = (dt.datetime(2049, 12, 31, 23, 59, 59, tzinfo=dt.UTC), dt.datetime(2050, 1, 1, tzinfo=dt.UTC))
    issuer = certificates.name(organization="somebody", common_name="a run of theirs")
    made = ours(
        issuer, 1, valid, certificates.basic_constraints(authority=True), certificates.key_usage(authority=True)
    )
    extensions: list[tuple[object, bool]] = [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (usage(key_cert_sign=True, crl_sign=True), True),
    ]
    assert made.tbs_certificate_bytes == by_the_library(made.issuer, 1, valid, extensions).tbs_certificate_bytes


@given(st.integers(1, 1 << 80))
def test_a_private_key(secret: int) -> None:
    made = ec.derive_private_key(secret, ec.SECP256R1())
    told = made.public_key().public_numbers()
    der = certificates.private_key(secret, certificates.point(told.x, told.y))
    old = serialization.PrivateFormat.TraditionalOpenSSL
    plain = serialization.NoEncryption()
    assert der == made.private_bytes(serialization.Encoding.DER, old, plain)
    assert certificates.pem("EC PRIVATE KEY", der) == made.private_bytes(serialization.Encoding.PEM, old, plain)


@pytest.mark.parametrize(("value", "told"), [(0, "020100"), (127, "02017f"), (128, "02020080"), (256, "02020100")])
def test_numbers_are_as_short_as_they_can_be(value: int, told: str) -> None:
    assert certificates.integer(value).hex() == told
