"""An exchange that is no model call, as an event. Pure."""

from collections.abc import Callable

from agentwrap.events import Body, HttpExchange, Item
from agentwrap.events.exchange import ExchangeEnded
from agentwrap.models.bodies import whole
from agentwrap.models.codings import decode
from agentwrap.models.passing import Passing, Side

KEPT_BYTES = 1 << 20


def tell(exchange: str, passing: Passing, ended: ExchangeEnded, emit: Callable[[Item], None]) -> None:
    """Tell it; bodies of more than 1 MiB are counted and not kept."""
    began, responded = passing.began, passing.responded
    encoding, answered = passing.header(b"content-encoding"), passing.header(b"content-encoding", of_response=True)
    request, asked_problem = _body(passing.up, ended.sent_bytes, encoding, emit)
    response, problem = _body(passing.down, ended.received_bytes, answered, emit)
    emit(
        HttpExchange(
            at_ns=ended.at_ns,
            span=began.span,
            pid=began.pid,
            exchange=exchange,
            connection=began.connection,
            scheme=began.scheme,
            host=began.host,
            port=began.port,
            method=began.method,
            path=began.target,
            status=responded.status if responded is not None else 0,
            requested_ns=began.at_ns,
            headers_ns=responded.at_ns if responded is not None else 0,
            ending=ended.ending,
            detail=ended.detail or (asked_problem or problem).encode(),
            request_headers=began.headers,
            response_headers=responded.headers if responded is not None else (),
            request=request,
            response=response,
        )
    )


def _body(side: Side, told_bytes: int, encodings: bytes, emit: Callable[[Item], None]) -> tuple[Body, str]:
    """`told_bytes`: how much there was, also where the body itself was not told."""
    size = max(side.size, told_bytes)
    if side.over or side.size > KEPT_BYTES:
        return Body(size, (), "over-cap"), ""
    if not side.size:
        return Body(size, (), "not-kept" if size else ""), ""
    raw = side.joined()
    data, problem = decode(raw, encodings, KEPT_BYTES)
    return whole(data or raw, emit), problem
