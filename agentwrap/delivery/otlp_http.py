"""OTLP over HTTP (opentelemetry.io/docs/specs/otlp, "OTLP/HTTP"): one POST per request, gzip, tried again if need be.

429, 502, 503, 504 and a connection that fails are tried again, not before `Retry-After` says; how often and how long is
the `patience` that is given. A partial success is no failure: what the server rejected is counted. Redirections are not
followed, no proxy is used. Refuses to know what is in a request.
"""

import email.utils
import gzip
import socket
import ssl
import time
from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Any, Self

import h11
import msgspec

from agentwrap import __version__
from agentwrap.delivery.endpoint import Endpoint
from agentwrap.errors import AgentwrapError

AGAIN = (429, 502, 503, 504)
TIMEOUT_S = 10.0
_MOST_ANSWER = 1 << 20
_LONGEST_WAIT_S = 60.0
_CHUNK = 64 << 10

Patience = Callable[[float], bool]
"""Told how long it is to wait; waits, and says whether to try again."""


class Answer(msgspec.Struct, frozen=True):
    """What the server said: its status, `Retry-After` in seconds, its body, how many spans it `rejected` and why."""

    status: int
    retry_after_s: float | None = None
    body: bytes = b""
    rejected: int = 0
    message: str = ""


def attempts(most: int = 5, wait: Callable[[float], None] = time.sleep) -> Callable[[], Patience]:
    """A patience for each request: so many tries in all."""

    def fresh() -> Patience:
        left = most - 1

        def patience(seconds: float) -> bool:
            nonlocal left
            left -= 1
            if left >= 0:
                wait(seconds)
            return left >= 0

        return patience

    return fresh


class Sender:
    """A connection to one server, made when it is needed. `timeout_s`: for connecting and for a whole answer."""

    def __init__(
        self,
        endpoint: Endpoint,
        patience: Callable[[], Patience],
        *,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._patience, self.timeout_s, self._tls = patience, timeout_s, tls
        self._socket: socket.socket | None = None
        self._http = h11.Connection(h11.CLIENT)

    def send(self, request: bytes) -> Answer:
        """Deliver a request. Raises AgentwrapError `output` where that cannot be done, `refused` if unwanted."""
        body = gzip.compress(request, 6, mtime=0)
        patience = self._patience()
        tries = 0
        while True:
            tries += 1
            failure = ""
            answer: Answer | None = None
            try:
                answer = self._post(body)
            except (OSError, h11.RemoteProtocolError) as error:
                self.close()
                failure = _why(error)
            if answer is not None and 200 <= answer.status < 300:
                return _accepted(answer)
            if answer is not None and answer.status not in AGAIN:
                raise self._error("refused", "the server does not take the spans", answer, "")
            asked_s = answer.retry_after_s if answer is not None else None
            wait_s = min(asked_s if asked_s is not None else 0.5 * 2 ** min(tries - 1, 4), _LONGEST_WAIT_S)
            if not patience(wait_s):
                raise self._error("output", f"the spans could not be delivered ({tries} tries)", answer, failure)

    def close(self) -> None:
        """Let go of the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _error(self, kind: Any, message: str, answer: Answer | None, failure: str) -> AgentwrapError:
        if answer is not None:
            failure = f"{answer.status} {readable(answer.body)}".rstrip()
        return AgentwrapError(kind, message, evidence=f"POST {self.endpoint.shown}: {failure}")

    def _post(self, body: bytes) -> Answer:
        kept = self._socket is not None
        try:
            return self._exchange(body)
        except (OSError, h11.RemoteProtocolError):
            self.close()
            if not kept:
                raise
        # A server may close a connection that waits (RFC 9112, 9.5): that says nothing about this request.
        return self._exchange(body)

    def _exchange(self, body: bytes) -> Answer:
        deadline = time.monotonic() + self.timeout_s
        if self._socket is None:
            self._connect()
        link = self._socket
        assert link is not None
        host = f"[{self.endpoint.host}]" if ":" in self.endpoint.host else self.endpoint.host
        headers = {
            "host": f"{host}:{self.endpoint.port}",
            "user-agent": f"agentwrap/{__version__}",
            "content-type": "application/x-protobuf",
            "accept": "application/x-protobuf",
            **dict(self.endpoint.headers),
            "content-encoding": "gzip",
            "content-length": str(len(body)),
        }
        http = self._http
        head = http.send(h11.Request(method="POST", target=self.endpoint.target, headers=list(headers.items())))
        data = (http.send(h11.Data(data=body)) or b"") + (http.send(h11.EndOfMessage()) or b"")
        link.settimeout(self.timeout_s)
        link.sendall((head or b"") + data)
        answer = self._answer(link, deadline)
        if http.our_state is h11.DONE and http.their_state is h11.DONE:
            http.start_next_cycle()
        else:
            self.close()
        return answer

    def _answer(self, link: socket.socket, deadline: float) -> Answer:
        status, retry_after, body = 0, None, b""
        late = False
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                left_s = deadline - time.monotonic()
                if late:
                    raise TimeoutError
                late = left_s <= 0  # one last look: what came while we ourselves were held up is an answer in time
                link.settimeout(max(left_s, 0.001))
                self._http.receive_data(link.recv(_CHUNK))
            elif isinstance(event, h11.Response):
                status = event.status_code
                retry_after = next((value for name, value in event.headers if name == b"retry-after"), None)
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
                if len(body) > _MOST_ANSWER:
                    raise h11.RemoteProtocolError("an answer without end")
            elif not isinstance(event, h11.InformationalResponse):
                return Answer(status, seconds_of(retry_after), body)

    def _connect(self) -> None:
        self._http = h11.Connection(h11.CLIENT)
        link = socket.create_connection((self.endpoint.host, self.endpoint.port), self.timeout_s)
        try:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.endpoint.tls:
                self._tls = self._tls or ssl.create_default_context()
                link = self._tls.wrap_socket(link, server_hostname=self.endpoint.host)
        except BaseException:
            link.close()
            raise
        self._socket = link


def seconds_of(retry_after: bytes | None, now: Callable[[], float] = time.time) -> float | None:
    """`Retry-After` (RFC 9110, 10.2.3) in seconds: a number, or a date; None where it is neither."""
    told = (retry_after or b"").decode("latin-1").strip()
    if told.isascii() and told.isdigit() and len(told) < 10:
        return float(told)
    try:
        return max(email.utils.parsedate_to_datetime(told).timestamp() - now(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


def readable(body: bytes) -> str:
    """The text of an error's body, which may be a protobuf Status: what can be read of it, clipped."""
    text = body[:2000].decode("utf-8", "replace")
    return " ".join("".join(one if one.isprintable() and one != "\ufffd" else " " for one in text).split())[:300]


def _accepted(answer: Answer) -> Answer:
    """A success, which may be a partial one."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    told = ExportTraceServiceResponse()
    try:
        told.ParseFromString(answer.body)
    except import_module("google.protobuf.message").DecodeError:
        return answer  # not every server answers in protobuf
    partial = told.partial_success
    return msgspec.structs.replace(answer, rejected=max(partial.rejected_spans, 0), message=partial.error_message)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    strerror = error.strerror if isinstance(error, OSError) else ""
    return strerror or str(error) or type(error).__name__
