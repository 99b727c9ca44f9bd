"""Requests of OTLP, decoded with the package of their makers, as plain values."""

from collections.abc import Iterable, Iterator
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def decoded(data: bytes) -> Any:
    request = ExportTraceServiceRequest()
    request.ParseFromString(data)
    return request


def plain(value: Any) -> Any:
    which = value.WhichOneof("value")
    told = getattr(value, which) if which else None
    return [plain(one) for one in told.values] if which == "array_value" else told


def attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: plain(pair.value) for pair in pairs}


def spans(data: bytes) -> Iterator[Any]:
    for resource in decoded(data).resource_spans:
        for scope in resource.scope_spans:
            yield from scope.spans


class Trace:
    """All spans of a trace, by id and by name."""

    def __init__(self, data: bytes) -> None:
        self.spans = list(spans(data))
        self.by_id = {span.span_id: span for span in self.spans}
        self.names = [span.name for span in self.spans]

    def one(self, name: str, **wanted: Any) -> Any:
        (found,) = [
            span
            for span in self.spans
            if span.name == name and all(self.told(span).get(key.replace("__", ".")) == wanted[key] for key in wanted)
        ]
        return found

    def told(self, span: Any) -> dict[str, Any]:
        return attributes(span.attributes)

    def above(self, span: Any) -> list[str]:
        """Names of the spans above one, nearest first."""
        found: list[str] = []
        while span.parent_span_id:
            span = self.by_id[span.parent_span_id]
            found.append(span.name)
        return found
