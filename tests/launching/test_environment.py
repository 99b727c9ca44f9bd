"""What an environment says of model servers, and what an agent's own becomes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.launching.environment import (
    Target,
    model_servers,
    reverse_path,
    trusted_files,
    with_authority,
    with_base_urls,
)

LOCAL = {Target(host, port) for host in ("127.0.0.1", "::1") for port in (11434, 1234)}
BYTES = st.binary(max_size=40).filter(lambda value: b"\0" not in value)
NAMES = st.sampled_from([b"OPENAI_BASE_URL", b"OLLAMA_HOST", b"https_proxy", b"SSL_CERT_FILE", b"DENO_CERT", b"OTHER"])


def test_local_models_are_there_unasked() -> None:
    assert model_servers({}) == LOCAL


@pytest.mark.parametrize(
    ("name", "value", "targets"),
    [
        (b"ANTHROPIC_BASE_URL", b"http://127.0.0.1:4000", {("127.0.0.1", 4000)}),
        (b"OPENAI_BASE_URL", b"http://localhost:8080/v1/", {("127.0.0.1", 8080), ("::1", 8080)}),
        (b"OPENAI_API_BASE", b"https://llm.example:8443/v1?x", {("", 8443)}),
        (b"MY_OWN_BASE_URL", b"http://user:word@[2001:DB8::1]", {("2001:db8::1", 80)}),
        (b"GOOGLE_GEMINI_BASE_URL", b"https://gemini.example", set()),  # port 443 is everybody's
        (b"OPENAI_BASE_URL", b"https://192.0.2.7", {("192.0.2.7", 443)}),
        (b"OLLAMA_HOST", b"192.0.2.1", {("192.0.2.1", 11434)}),
        (b"OLLAMA_HOST", b":4444", {("127.0.0.1", 4444), ("::1", 4444)}),
        (b"OLLAMA_HOST", b"0.0.0.0:99/", {("127.0.0.1", 99), ("::1", 99)}),
        (b"HTTPS_PROXY", b"http://proxy.example:3128/", {("", 3128)}),
        (b"http_proxy", b"127.0.0.1:8888", {("127.0.0.1", 8888)}),
        (b"ALL_PROXY", b"socks5://127.0.0.1:1080", set()),
        (b"OPENAI_BASE_URL", b"", set()),
        (b"OPENAI_BASE_URL", b"http://x:99999/", set()),
        (b"DATABASE_URL", b"http://127.0.0.1:5432", set()),
    ],
)
def test_servers_that_are_named(name: bytes, value: bytes, targets: set[tuple[str, int]]) -> None:
    assert model_servers({name: value}) - LOCAL == {Target(*one) for one in targets}


def test_servers_of_the_command_line() -> None:
    found = model_servers({}, ("127.0.0.1:8099", "llm.example", "other.example:8443"))
    assert found - LOCAL == {Target("127.0.0.1", 8099), Target("", 8443)}


def test_servers_of_other_urls() -> None:
    urls = [b"http://127.0.0.1:8080/mcp", b"https://mcp.example.com/mcp", b"https://mcp.example.com:8443/x", b"no url"]
    new = model_servers({}, (), urls) - model_servers({})
    assert new == {Target("127.0.0.1", 8080), Target("", 8443)}


def test_each_variable_keeps_what_it_named() -> None:
    given = {b"SSL_CERT_FILE": b"/own.pem", b"CURL_CA_BUNDLE": b"/curl.pem", b"NODE_EXTRA_CA_CERTS": b"/node.pem"}
    files = trusted_files(given, b"/system.pem")
    assert (files[b"SSL_CERT_FILE"], files[b"CURL_CA_BUNDLE"], files[b"PIP_CERT"]) == (
        b"/own.pem", b"/curl.pem", b"/own.pem"
    )  # fmt: skip
    assert (files[b"NODE_EXTRA_CA_CERTS"], files[b"DENO_CERT"]) == (b"/node.pem", b"")
    assert b"NIX_SSL_CERT_FILE" not in files
    assert trusted_files({b"NIX_SSL_CERT_FILE": b"/nix.pem"}, b"/system.pem")[b"NIX_SSL_CERT_FILE"] == b"/nix.pem"


def test_without_a_bundle_nothing_replaces_a_clients_own_list() -> None:
    """A list of ours alone would close every other host to it."""
    assert trusted_files({}, None) == {b"NODE_EXTRA_CA_CERTS": b"", b"DENO_CERT": b""}


def test_the_environment_with_an_authority() -> None:
    made = with_authority({b"A": b"b", b"SSL_CERT_FILE": b"/own.pem"}, {b"SSL_CERT_FILE": b"/ours.pem"})
    assert made == {b"A": b"b", b"SSL_CERT_FILE": b"/ours.pem", b"DENO_TLS_CA_STORE": b"system,mozilla"}
    assert with_authority({b"A": b"b"}, {}) == {b"A": b"b"}


def test_base_urls_lead_to_the_proxy_and_from_there_to_where_they_led() -> None:
    given = {b"OPENAI_BASE_URL": b"http://127.0.0.1:8080/v1", b"ANTHROPIC_API_BASE": b"bedrock", b"A": b"b"}
    made = with_base_urls(given, 4000)
    assert made[b"OPENAI_BASE_URL"] == b"http://127.0.0.1:4000/+/http/127.0.0.1:8080/v1"
    assert made[b"ANTHROPIC_BASE_URL"] == b"http://127.0.0.1:4000/+/https/api.anthropic.com"
    assert (made[b"ANTHROPIC_API_BASE"], made[b"A"]) == (b"bedrock", b"b")
    assert reverse_path(b"HTTPS://x/y") == b"/+/https/x/y"


@given(st.dictionaries(NAMES, BYTES, max_size=4))
def test_any_environment(given: dict[bytes, bytes]) -> None:
    """Ports are ports, what is not ours stays, and nothing is lost."""
    assert all(0 < target.port < 65536 for target in model_servers(given))
    made = with_base_urls(given, 1)
    assert {name: made[name] for name in given if name not in made or b"BASE" not in name} == {
        name: value for name, value in given.items() if b"BASE" not in name
    }
    assert trusted_files(given, None).keys() >= {b"NODE_EXTRA_CA_CERTS"}
