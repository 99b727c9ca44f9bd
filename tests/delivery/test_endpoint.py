from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.delivery.endpoint import Endpoint, endpoint, from_environment
from agentwrap.errors import AgentwrapError


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "target"),
    [
        ("http://localhost:4318", "localhost", 4318, False, "/v1/traces"),
        ("http://localhost:4318/", "localhost", 4318, False, "/v1/traces"),
        ("https://c.example/api/otel", "c.example", 443, True, "/api/otel/v1/traces"),
        ("https://c.example/v1/traces", "c.example", 443, True, "/v1/traces"),
        ("http://[::1]:9/x?key=1", "::1", 9, False, "/x/v1/traces?key=1"),
    ],
)
def test_the_path_of_traces_is_put_behind(url: str, host: str, port: int, tls: bool, target: str) -> None:
    assert endpoint(url, (), {}) == Endpoint(host, port, tls, target)


@pytest.mark.parametrize("url", ["", "localhost:4318", "ftp://x", "http://", "http://x:99999", "http://u:p@x", "http://x/\u00e4"])
def test_what_is_no_address_is_said_to_be_none(url: str) -> None:
    with pytest.raises(AgentwrapError) as caught:
        endpoint(url, (), {})
    assert caught.value.kind == "usage"
    assert "u:p" not in caught.value.message


def test_what_is_shown_has_no_secret() -> None:
    assert endpoint("http://[::1]:9/x?key=1", ["a=secret"], {}).shown == "http://[::1]:9/x/v1/traces"


def test_headers_come_from_the_variables_and_from_the_command_line() -> None:
    environment = {"OTEL_EXPORTER_OTLP_HEADERS": "Api-Key=a%20b, x-two=2,=,nothing,bad name=1"}
    environment["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] = "x-two=3"
    assert from_environment(environment) == [("Api-Key", "a b"), ("x-two", "2"), ("x-two", "3")]
    given_headers = endpoint("http://x", ["X-Three=4", "api-key=mine"], environment).headers
    assert dict(given_headers) == {"api-key": "mine", "x-two": "3", "x-three": "4"}


@pytest.mark.parametrize("header", ["x", "=1", "a b=1", "a=1\r\nb: 2", "a=\u00e9"])
def test_no_header_can_hold_another(header: str) -> None:
    with pytest.raises(AgentwrapError):
        endpoint("http://x", [header], {})


@given(st.text(), st.text())
def test_any_text_is_an_endpoint_or_an_error_for_people(url: str, headers: str) -> None:
    with suppress(AgentwrapError):
        made = endpoint(url, [], {"OTEL_EXPORTER_OTLP_HEADERS": headers})
        assert made.target.endswith("/v1/traces") or "?" in made.target
        assert all("\n" not in value and "\r" not in value for pair in made.headers for value in pair)
