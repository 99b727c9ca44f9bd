"""Whom a request to the proxy is for, and what that server is sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.http_head import HttpError, Request, RequestStream
from agentwrap.gateway.proxying.requests import Meant, NotForUsError, Server, meant_by, refusal
from agentwrap.launching.environment import reverse_path


def request(raw: bytes) -> Request:
    (found,) = RequestStream().feed(raw)
    assert isinstance(found, Request)
    return found


def ask(target: bytes, *fields: bytes, method: bytes = b"GET") -> Meant:
    return meant_by(request(b"\r\n".join([method + b" " + target + b" HTTP/1.1", *fields]) + b"\r\n\r\n"))


def test_a_base_url_of_ours_stands_for_another_one() -> None:
    meant = ask(b"/+/https/api.anthropic.com/v1/messages?beta=true", b"HOST: 127.0.0.1:4000", b"X-Api-Key: k")
    assert meant.server == Server("https", "api.anthropic.com", 443)
    assert meant.head == b"GET /v1/messages?beta=true HTTP/1.1\r\nHOST: api.anthropic.com\r\nX-Api-Key: k\r\n\r\n"
    assert not meant.tunnel


@pytest.mark.parametrize(
    ("url", "server", "path", "host"),
    [
        (b"http://127.0.0.1:8080/v1", Server("http", "127.0.0.1", 8080), b"/v1/x", b"127.0.0.1:8080"),
        (b"https://[2001:db8::1]:8443", Server("https", "2001:db8::1", 8443), b"/x", b"[2001:db8::1]:8443"),
        (b"HTTP://Models.Example", Server("http", "models.example", 80), b"/x", b"Models.Example"),
    ],
)
def test_what_the_environment_names_is_what_is_asked(url: bytes, server: Server, path: bytes, host: bytes) -> None:
    meant = ask(reverse_path(url) + b"/x", b"Host: localhost:9")
    assert meant.server == server
    assert meant.head == b"GET " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"


def test_whole_urls_and_tunnels() -> None:
    meant = ask(b"http://example.com:81?q", b"Host: example.com:81", b"Proxy-Connection: keep-alive")
    assert meant == Meant(
        Server("http", "example.com", 81), b"GET /?q HTTP/1.1\r\nHost: example.com:81\r\n\r\n"
    )
    tunnel = ask(b"example.com:443", b"Host: example.com:443", method=b"CONNECT")
    assert tunnel == Meant(Server("https", "example.com", 443), tunnel=True)


@pytest.mark.parametrize(
    ("target", "fields", "status"),
    [
        (b"/", [b"Host: 127.0.0.1"], 404),
        (b"/+/ftp/x/y", [b"Host: 127.0.0.1"], 404),
        (b"/+/https//x", [b"Host: 127.0.0.1"], 404),
        (b"/+/https/a:b:c/x", [b"Host: 127.0.0.1"], 400),
        (b"/+/https/x/y", [b"Host: evil.example:4000"], 403),
        (b"/+/https/x/y", [b"Host: 127.0.0.1", b"Origin: https://evil.example"], 403),
        (b"/+/https/x/y", [b"Host: 127.0.0.1", b"Origin: null"], 403),
        (b"/+/https/x/y", [b"Host: 127.0.0.1", b"Sec-Fetch-Site: cross-site"], 403),
    ],
)
def test_what_is_not_for_us(target: bytes, fields: list[bytes], status: int) -> None:
    with pytest.raises(NotForUsError) as failure:
        ask(target, *fields)
    assert failure.value.status == status


def test_a_local_page_may_ask() -> None:
    assert ask(b"/+/http/x/y", b"Host: localhost:1", b"Origin: http://localhost:3000").server.host == "x"


def test_a_refusal_says_where_it_comes_from() -> None:
    assert refusal(403, "a\x1b[2Jb").endswith(b"\r\n\r\nagentwrap proxy: a\\x1b[2Jb\n")
    assert refusal(404, "x", head=True).endswith(b"\r\n\r\n")


@given(st.binary(max_size=60), st.lists(st.binary(max_size=30), max_size=3))
def test_any_target(target: bytes, fields: list[bytes]) -> None:
    """It is refused, or it names a server, and one head goes there."""
    try:
        meant = ask(b"/+/" + target, b"Host: 127.0.0.1", *fields)
    except (HttpError, NotForUsError, ValueError):
        return
    assert meant.server.host
    assert isinstance(request(meant.head), Request)
