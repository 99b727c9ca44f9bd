"""HTTP exchanges and model calls as HAR 1.2 (w3c.github.io/web-performance/specs/HAR), for browsers and mitmproxy.

What crossed the wire is there as it is in the file: redacted, without its codings. What HAR has no field for has a
name that begins with an underscore: the call, turn and agent, tokens, and when which part of a stream came.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from agentwrap import __version__
from agentwrap.export.stamps import rfc3339
from agentwrap.rows import Row, number
from agentwrap.views.source import Source, foreign_text, mapping

MEDIA = "application/json"
_MS = 1e-6
_TOKENS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def export(source: Source, rows: Iterable[Row], started_unix_ns: int) -> Iterator[bytes]:
    """One document; entries in the order in which they ended."""
    head = {"version": "1.2", "creator": {"name": "agentwrap", "version": __version__}, "pages": []}
    yield _encode({"log": head})[:-2].encode("ascii") + b',"entries":['
    separator = b"\n"
    for entry in _entries(source, rows, started_unix_ns):
        yield separator + _encode(entry).encode("ascii")
        separator = b",\n"
    yield b"\n]}}\n"


def _entries(source: Source, rows: Iterable[Row], started_unix_ns: int) -> Iterator[dict[str, Any]]:
    asked: dict[str, Row] = {}
    for row in rows:
        if row.kind == "model.request":
            asked[str(row.data.get("call", ""))] = row
        elif row.kind == "model.response" and (request := asked.pop(str(row.data.get("call", "")), None)) is not None:
            yield _call(source, request, row, started_unix_ns)
        elif row.kind == "http.exchange":
            yield _exchange(source, row, started_unix_ns)
    for request in asked.values():
        yield _call(source, request, None, started_unix_ns)


def _call(source: Source, request: Row, response: Row | None, started_unix_ns: int) -> dict[str, Any]:
    data, answer = request.data, response.data if response is not None else {}
    begun = number(answer.get("requested_ns"), request.at_ns)
    ended = response.at_ns if response is not None else begun
    url = _url(str(data.get("scheme", "https")), data, foreign_text(data.get("path")))
    method = foreign_text(data.get("method", "POST"))
    entry: dict[str, Any] = {
        "startedDateTime": rfc3339(started_unix_ns + begun),
        "time": (ended - begun) * _MS,
        "request": _request(source, request.seq, method, url, data.get("headers"), data),
        "response": _response(source, response, answer),
        "cache": {},
        "timings": _timings(begun, number(answer.get("headers_ns")), ended),
        "connection": str(data.get("connection", "")),
        "_call": data.get("call"),
        "_agent": data.get("agent"),
        "_turn": data.get("turn"),
        "_attempt": number(data.get("attempt"), 1),
        "_api": data.get("api"),
        "_transport": data.get("transport", "http"),
        "_ending": answer.get("ending", "unfinished"),
        "_usage": {name: answer[name] for name in _TOKENS if answer.get(name) is not None},
    }
    timing = _body(source, response.seq, "timing") if response is not None else None
    if timing:
        entry["_chunks"] = _json(timing)
    return entry


def _exchange(source: Source, row: Row, started_unix_ns: int) -> dict[str, Any]:
    data = row.data
    begun = number(data.get("requested_ns"), row.at_ns)
    url = _url(str(data.get("scheme", "https")), data, foreign_text(data.get("path")))
    method = foreign_text(data.get("method"))
    return {
        "startedDateTime": rfc3339(started_unix_ns + begun),
        "time": (row.at_ns - begun) * _MS,
        "request": _request(source, row.seq, method, url, data.get("request_headers"), data),
        "response": _response(source, row, data),
        "cache": {},
        "timings": _timings(begun, number(data.get("headers_ns")), row.at_ns),
        "connection": str(data.get("connection", "")),
        "_ending": data.get("ending", "complete"),
    }


def _url(scheme: str, data: dict[str, Any], path: str) -> str:
    if "://" in path[:8]:
        return path
    host, port = foreign_text(data.get("host")), number(data.get("port"))
    authority = f"[{host}]" if ":" in host else host
    if port and port != {"http": 80, "https": 443}[scheme if scheme == "http" else "https"]:
        authority += f":{port}"
    return f"{scheme}://{authority}{path or '/'}"


def _request(source: Source, seq: int, method: str, url: str, headers: Any, data: dict[str, Any]) -> dict[str, Any]:
    told = _headers(headers)
    size = number(mapping(data.get("request")).get("size"))
    entry: dict[str, Any] = {
        "method": method,
        "url": url,
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": told,
        "queryString": _query(url),
        "headersSize": -1,
        "bodySize": size,
    }
    body = _body(source, seq, "request")
    if body is not None:
        entry["postData"] = {"mimeType": _header(told, "content-type"), "text": body.decode("utf-8", "replace")}
    elif size:
        entry["postData"] = {"mimeType": _header(told, "content-type"), "text": "", "comment": "not kept"}
    return entry


def _response(source: Source, row: Row | None, data: dict[str, Any]) -> dict[str, Any]:
    told = _headers(data.get("response_headers", data.get("headers"))) if row is not None else []
    size = number(mapping(data.get("response")).get("size"))
    content: dict[str, Any] = {"size": size, "mimeType": _header(told, "content-type") or "application/octet-stream"}
    body = _body(source, row.seq, "response") if row is not None else None
    if body is not None:
        try:
            content["text"] = body.decode()
        except UnicodeDecodeError:
            content |= {"text": base64.b64encode(body).decode("ascii"), "encoding": "base64"}
    elif size:
        content["comment"] = "not kept"
    return {
        "status": number(data.get("status")),
        "statusText": "",
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": told,
        "content": content,
        "redirectURL": _header(told, "location"),
        "headersSize": -1,
        "bodySize": size,
    }


def _timings(begun: int, headers: int, ended: int) -> dict[str, float]:
    """Sending is not told apart from waiting: what is seen is the first byte of either message."""
    answered = headers if begun <= headers <= ended else ended
    return {"send": 0, "wait": (answered - begun) * _MS, "receive": (ended - answered) * _MS}


def _headers(value: Any) -> list[dict[str, str]]:
    pairs = value if isinstance(value, list) else []
    return [
        {"name": foreign_text(pair[0]), "value": foreign_text(pair[1])}
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2
    ]


def _header(headers: list[dict[str, str]], name: str) -> str:
    return next((one["value"] for one in headers if one["name"].lower() == name), "")


def _query(url: str) -> list[dict[str, str]]:
    query = url.partition("?")[2].partition("#")[0]
    pairs = (part.partition("=") for part in query.split("&") if part)
    return [{"name": name, "value": value} for name, _, value in pairs]


def _body(source: Source, seq: int, field: str) -> bytes | None:
    """A body, None where there is none or where not all of it was kept."""
    pieces = list(source.body(seq, field))
    if not pieces or any(piece is None for piece in pieces):
        return None
    return b"".join(piece for piece in pieces if piece is not None)


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
