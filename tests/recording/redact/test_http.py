"""Heads of HTTP messages lose their credentials, and nothing else."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.recording.redact import RedactOptions, Redactor
from agentwrap.recording.redact.http import header_kind, in_query

KEY = bytes(range(32))
VALUE = b"Zx9-short-0815"


@pytest.mark.parametrize(
    "name",
    [
        *("authorization", "Proxy-Authorization", "x-amzn-oidc-authorization", "Cookie", "set-cookie", "X-API-Key"),
        *("api-key", "apikey", "x-goog-api-key", "anthropic-api-key", "x-auth-token", "x-amz-security-token", "token"),
        *("x-csrf-token", "x-client-secret", "ocp-apim-subscription-key", "x-functions-key", "x-access-key"),
        *("x-session-token", "x-accesstoken", "x-password", "x-hub-signature", "x-auth-key"),
    ],
)
def test_values_of_these_headers_are_replaced_whole(name: str) -> None:
    for value in (VALUE, b"Bearer " + VALUE, b"a=b; c=" + VALUE, b"odd"):
        ((kept, told),) = Redactor(KEY).headers([(name.encode(), value)])
        assert kept == name.encode()
        assert told.startswith(b"\xc2\xabredacted:")
        assert told.endswith(b"\xc2\xbb")
        assert len(told) < 50


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("content-type", "application/json"), ("idempotency-key", "stainless-node-retry-1"), ("x-request-id", "r1")),
        *(("anthropic-ratelimit-tokens-remaining", "9"), ("sec-websocket-key", "dGhlIHNhbXBsZQ=="), ("host", "a.b")),
        *(("www-authenticate", "Bearer realm=x"), ("x-max-tokens", "4096"), ("x-stainless-retry-count", "0")),
        *(("location", "/v1/files?limit=10&after=x"), ("user-agent", "x/1.0 (y)"), ("authorization", "")),
    ],
)
def test_other_headers_stay(name: str, value: str) -> None:
    pair = (name.encode(), value.encode())
    assert Redactor(KEY).headers([pair]) == (pair,)


def test_credentials_of_a_head_are_searched_for_from_then_on() -> None:
    made = Redactor(KEY)
    password = b"some pass word 12"
    made.headers(
        [
            (b"authorization", b"Basic " + base64.b64encode(b"me:" + password)),
            (b"x-api-key", VALUE),
            (b"cookie", b"theme=dark; sid=0123456789abcdef0"),
        ]
    )
    for secret in (password, VALUE, b"0123456789abcdef0"):
        assert secret not in made.clean(b"so " + secret + b" it is")
    assert made.clean(b"dark theme") == b"dark theme"


def test_the_users_names_count_as_headers_too() -> None:
    made = Redactor(KEY, RedactOptions(names=("X_MY_ID",)))
    assert made.headers([(b"x-my-id", b"abc")])[0][1].startswith(b"\xc2\xabredacted:user:")


@pytest.mark.parametrize(
    ("target", "kept"),
    [
        ("/v1beta/models/m:generate?key=" + VALUE.decode() + "&alt=sse", "&alt=sse"),
        ("/x?a=1&api_key=" + VALUE.decode(), "/x?a=1&api_key="),
        ("/x?access%5Ftoken=" + VALUE.decode() + "#f", "#f"),
        ("/x?X-Amz-Signature=" + VALUE.decode() + ";b=2", ";b=2"),
        ("https://h/x?sig=" + VALUE.decode() + "&se=2026", "&se=2026"),
    ],
)
def test_parameters_that_are_secrets(target: str, kept: str) -> None:
    made = Redactor(KEY)
    told = made.target(target.encode())
    assert VALUE not in told
    assert kept.encode() in told
    assert b"\xc2\xabredacted:query:" in told
    assert made.target(told) == told


@pytest.mark.parametrize("target", ["/v1/messages?beta=true", "/x?limit=10&order=key", "*", "/a=b", "/?", "/x?key=on"])
def test_other_targets_stay(target: str) -> None:
    assert Redactor(KEY).target(target.encode()) == target.encode()


@given(st.binary(max_size=60), st.binary(max_size=200))
def test_any_bytes_are_taken(name: bytes, value: bytes) -> None:
    made = Redactor(KEY)
    once = made.headers([(name, value)])
    assert made.headers(once) == once
    assert all(0 <= place.start < place.end <= len(value) for place in in_query(value))
    assert isinstance(header_kind(name), str)
