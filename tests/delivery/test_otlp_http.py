import itertools
import socket
import ssl
import threading
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from otlp_receiver import FINE, Receiver, partial, receiver

from agentwrap.delivery import otlp_http
from agentwrap.delivery.endpoint import endpoint
from agentwrap.delivery.otlp_http import Sender, attempts, readable, seconds_of
from agentwrap.errors import AgentwrapError


class Waits(list[float]):
    """Remembers how long one was to wait, and does not."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def sender(to: Receiver | str, waits: Waits | None = None, *, timeout_s: float = 300, **options: Any) -> Sender:
    url = to if isinstance(to, str) else to.url
    wait = waits if waits is not None else Waits()
    return Sender(endpoint(url, ["x-key=k"], {}), attempts(4, wait), timeout_s=timeout_s, **options)


def refused(to: Receiver | str, **options: Any) -> AgentwrapError:
    with sender(to, **options) as mine, pytest.raises(AgentwrapError) as caught:
        mine.send(b"x")
    return caught.value


def test_requests_arrive_whole_over_one_connection() -> None:
    with receiver() as there, sender(there) as mine:
        for body in (b"", b"one", bytes(range(256)) * 20_000):
            assert mine.send(body).status == 200
    assert there.bodies == [b"", b"one", bytes(range(256)) * 20_000]
    assert len(there.connections) == 1
    path, head = there.heads[0]
    assert path == "/v1/traces"
    assert head["content-type"] == "application/x-protobuf"
    assert head["content-encoding"] == "gzip"
    assert head["x-key"] == "k"
    assert head["host"] == there.url.removeprefix("http://")


def test_what_was_rejected_is_counted() -> None:
    with receiver(partial(3, "too old")) as there, sender(there) as mine:
        first, second = mine.send(b"x"), mine.send(b"x")
    assert (first.rejected, first.message) == (3, "too old")
    assert (second.rejected, second.message) == (0, "")


def test_an_answer_that_is_no_protobuf_is_still_a_success() -> None:
    with receiver((200, {}, b'{"partialSuccess":{}}')) as there, sender(there) as mine:
        assert mine.send(b"x").rejected == 0


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again_when_it_says(status: int) -> None:
    waits = Waits()
    replies = ((status, {"Retry-After": "7"}, b""), (status, {}, b"later"))
    with receiver(*replies) as there, sender(there, waits) as mine:
        assert mine.send(b"x").status == 200
    assert waits == [7.0, 1.0]
    assert there.bodies == [b"x"]


def test_it_is_not_asked_for_ever() -> None:
    waits = Waits()
    with receiver(*[(503, {"Retry-After": "99999"}, b"full")] * 9) as there:
        with sender(there, waits) as mine, pytest.raises(AgentwrapError) as caught:
            mine.send(b"x")
        assert len(there.replies) == 5
    assert waits == [60.0, 60.0, 60.0]
    assert caught.value.kind == "output"
    assert caught.value.evidence == f"POST {there.url}/v1/traces: 503 full"


@pytest.mark.parametrize(("status", "body"), [(400, b"bad"), (401, b""), (404, b"<p>"), (302, b""), (500, b"oops")])
def test_a_refusal_is_final_and_told(status: int, body: bytes) -> None:
    with receiver((status, {}, body)) as there:
        failure = refused(there)
    assert failure.kind == "refused"
    assert failure.evidence == f"POST {there.url}/v1/traces: {status} {body.decode()}".rstrip()
    assert len(there.heads) == 1


def test_a_connection_that_was_closed_meanwhile_is_made_again_without_a_wait() -> None:
    waits = Waits()
    with receiver(FINE, (0, {}, b""), FINE) as there, sender(there, waits) as mine:
        mine.send(b"one")
        assert mine.send(b"two").status == 200
    assert waits == []
    assert len(there.connections) == 2


def test_nobody_there_is_told_after_some_tries() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and kept, but not listened at: the port is nobody else's meanwhile
        failure = refused(f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert failure.message == "the spans could not be delivered (4 tries)"
    assert failure.evidence.endswith("Connection refused")


def test_a_server_that_never_answers_is_left() -> None:
    with receiver() as there:
        there.held = threading.Event()
        failure = refused(there, timeout_s=0.05)
        there.held.set()
    assert failure.evidence.endswith("no answer in time")


def test_an_answer_that_came_while_we_were_held_up_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = itertools.count()

    def an_hour_later() -> float:
        look = next(looks)
        if look:
            assert mine._socket is not None
            mine._socket.recv(1, socket.MSG_PEEK)  # it is here
        return 3600.0 * min(look, 1)

    waits = Waits()
    with receiver() as there, sender(there, waits) as mine:
        monkeypatch.setattr(otlp_http, "time", SimpleNamespace(monotonic=an_hour_later))
        assert mine.send(b"x").status == 200
    assert (waits, there.bodies) == ([], [b"x"])


@pytest.mark.parametrize("said", [b"", b"no\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", b"\x16\x03"])
def test_garbage_is_a_failure_that_is_told(said: bytes) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        for _ in range(4):
            link, _ = listener.accept()
            with link:
                link.recv(1 << 16)
                link.sendall(said)

    thread = threading.Thread(target=answer)
    thread.start()
    failure = refused(f"http://127.0.0.1:{listener.getsockname()[1]}")
    thread.join()
    listener.close()
    assert failure.kind == "output"
    assert failure.evidence


def test_tls_is_checked(tmp_path: Path) -> None:
    certificate, key = authority(tmp_path)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate, key)
    with receiver(tls=theirs) as there:
        with sender(there, tls=ssl.create_default_context(cafile=str(certificate))) as mine:
            assert mine.send(b"x").status == 200
        assert "not trusted" in refused(there).evidence
    assert there.bodies == [b"x"]


def authority(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    import datetime as dt
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "here")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - dt.timedelta(1)).not_valid_after(now + dt.timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    certificate, private = folder / "c.pem", folder / "k.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                          serialization.NoEncryption()))  # fmt: skip
    return certificate, private


def test_retry_after_is_seconds_or_a_date() -> None:
    assert seconds_of(b"120") == 120.0
    assert seconds_of(formatdate(1000, usegmt=True).encode(), lambda: 990.0) == 10.0
    assert seconds_of(formatdate(1000, usegmt=True).encode(), lambda: 2000.0) == 0.0
    assert seconds_of(None) is None
    assert seconds_of(b"soon") is None


@given(st.binary())
def test_no_header_or_body_is_too_strange(data: bytes) -> None:
    seconds_of(data)
    assert readable(data).isprintable()


def test_the_text_of_a_status_can_be_read() -> None:
    assert readable(b"\x08\x03\x12\x0dinvalid spans") == "invalid spans"
