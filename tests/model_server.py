"""A model server of the tests' own: Anthropic Messages, OpenAI Chat and Responses, streamed or not, and its log.

What it does is chosen by the request's model name, `WHAT` or `WHAT@CODING`. Answers depend on the request alone, so
that two runs of one client get the same. `log` has every call as it came: path, headers, body, tokens and tool ids.
"""

import base64
import gzip
import hashlib
import json
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import brotli
import far_side
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import CloseReason, FrameProtocol

TEXT = "Grüße, 世界 — 🦜 und «mehr»."
OUTPUT_TOKENS = 17
TOOLS = (("get_weather", {"city": "Köln"}), ("get_time", {"zone": "Europe/Berlin", "note": '日本\n"q"'}))


@dataclass
class Call:
    """One call as it came. `finished`: its answer was sent whole."""

    api: str
    path: str
    headers: dict[str, str]
    body: bytes
    model: str
    status: int = 0
    tools: list[str] = field(default_factory=list)
    finished: bool = False

    @property
    def new_tokens(self) -> int:
        return max(1, len(self.body) // 4)

    @property
    def input_tokens(self) -> int:
        """All of them: Anthropic counts those of its cache apart."""
        return self.new_tokens + (5 if self.api == "anthropic" else 0)


class CutError(Exception):
    """The connection is to end now. `reset`: in the hard way."""

    def __init__(self, reset: bool) -> None:
        super().__init__()
        self.reset = reset


def _sse(name: str, data: dict[str, Any]) -> bytes:
    text = json.dumps(data, ensure_ascii=False).encode()
    return (b"event: " + name.encode() + b"\n" if name else b"") + b"data: " + text + b"\n\n"


def _pieces(text: str) -> list[str]:
    return [text[i : i + 5] for i in range(0, len(text), 5)]


class Answer:
    """What a call is answered: `document()`, or `events()` for a stream."""

    def __init__(self, call: Call, what: str) -> None:
        self.call = call
        self.what = what
        self.ident = hashlib.sha256(call.body).hexdigest()[:12]
        self.tools = [(f"{self.ident}{n}", *tool) for n, tool in enumerate(TOOLS)] if what == "tools" else []
        self.text = TEXT * {"long": 60, "slow": 60}.get(what, 1)
        self.prefix = {"anthropic": "toolu_", "chat": "call_", "responses": "call_"}[call.api]
        call.tools = [self.prefix + tool[0] for tool in self.tools]

    def document(self) -> dict[str, Any]:
        return {"anthropic": self._anthropic, "chat": self._chat, "responses": self._responses}[self.call.api]()

    def events(self) -> Iterator[bytes]:
        made = {"anthropic": self._anthropic_events, "chat": self._chat_events, "responses": self._responses_events}
        return made[self.call.api]()

    def _anthropic(self) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": self.text}]
        content += [{"type": "tool_use", "id": self.prefix + i, "name": n, "input": a} for i, n, a in self.tools]
        return {
            "id": f"msg_{self.ident}", "type": "message", "role": "assistant", "model": self.call.model,
            "content": content, "stop_reason": "tool_use" if self.tools else "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": self.call.new_tokens, "output_tokens": OUTPUT_TOKENS,
                      "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2},
        }  # fmt: skip

    def _anthropic_events(self) -> Iterator[bytes]:
        whole = self._anthropic()
        usage = {**whole["usage"], "output_tokens": 1}
        yield _sse("message_start", {"type": "message_start", "message": {
            **whole, "content": [], "stop_reason": None, "usage": usage}})  # fmt: skip
        for index, block in enumerate(whole["content"]):
            tool = block["type"] == "tool_use"
            begun = {**block, "input": {}} if tool else {**block, "text": ""}
            yield _sse("content_block_start", {"type": "content_block_start", "index": index, "content_block": begun})
            yield _sse("ping", {"type": "ping"})
            said = json.dumps(block["input"], ensure_ascii=False) if tool else block["text"]
            for piece in _pieces(said):
                delta = {"type": "input_json_delta", "partial_json": piece} if tool else {
                    "type": "text_delta", "text": piece}  # fmt: skip
                yield _sse("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
            yield _sse("content_block_stop", {"type": "content_block_stop", "index": index})
        yield _sse("message_delta", {
            "type": "message_delta", "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None},
            "usage": {"output_tokens": OUTPUT_TOKENS}})  # fmt: skip
        yield _sse("message_stop", {"type": "message_stop"})

    def _chat_usage(self) -> dict[str, Any]:
        given = self.call.input_tokens
        return {"prompt_tokens": given, "completion_tokens": OUTPUT_TOKENS, "total_tokens": given + OUTPUT_TOKENS}

    def _chat(self) -> dict[str, Any]:
        calls = [
            {"id": self.prefix + i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
            for i, n, a in self.tools
        ]
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        message |= {"tool_calls": calls} if calls else {}
        stop = "tool_calls" if calls else "stop"
        return {
            "id": f"chatcmpl-{self.ident}", "object": "chat.completion", "created": 1, "model": self.call.model,
            "choices": [{"index": 0, "message": message, "finish_reason": stop, "logprobs": None}],
            "usage": self._chat_usage(),
        }  # fmt: skip

    def _chat_events(self) -> Iterator[bytes]:
        whole = self._chat()
        message = whole["choices"][0]["message"]

        def chunk(delta: dict[str, Any], stop: str | None = None, **more: Any) -> bytes:
            choices = [{"index": 0, "delta": delta, "finish_reason": stop}]
            return _sse("", {**whole, "object": "chat.completion.chunk", "choices": choices, "usage": None, **more})

        yield chunk({"role": "assistant", "content": ""})
        for piece in _pieces(self.text):
            yield chunk({"content": piece})
        for index, tool in enumerate(message.get("tool_calls", [])):
            name = {"name": tool["function"]["name"], "arguments": ""}
            yield chunk({"tool_calls": [{**tool, "index": index, "function": name}]})
            for piece in _pieces(tool["function"]["arguments"]):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, whole["choices"][0]["finish_reason"])
        yield chunk({}, choices=[], usage=self._chat_usage())
        yield b"data: [DONE]\n\n"

    def _items(self) -> list[dict[str, Any]]:
        said = {"type": "output_text", "text": self.text, "annotations": []}
        return [
            {"type": "message", "id": f"msg_{self.ident}", "status": "completed", "role": "assistant",
             "content": [said]},
            *({"type": "function_call", "id": f"fc_{i}", "call_id": self.prefix + i, "name": n,
               "arguments": json.dumps(a), "status": "completed"} for i, n, a in self.tools),
        ]  # fmt: skip

    def _responses(self) -> dict[str, Any]:
        given = self.call.input_tokens
        return {
            "id": f"resp_{self.ident}", "object": "response", "created_at": 1, "status": "completed", "error": None,
            "incomplete_details": None, "instructions": None, "metadata": {}, "model": self.call.model,
            "output": self._items(), "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto",
            "tools": [], "top_p": 1.0,
            "usage": {"input_tokens": given, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
                      "output_tokens": OUTPUT_TOKENS, "output_tokens_details": {"reasoning_tokens": 4},
                      "total_tokens": given + OUTPUT_TOKENS},
        }  # fmt: skip

    def responses_messages(self) -> Iterator[dict[str, Any]]:
        whole = self._responses()
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        made: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        for place, item in enumerate(whole["output"]):
            at = {"output_index": place, "item_id": item["id"]}
            empty = {"content": []} if item["type"] == "message" else {"arguments": ""}
            made.append({"type": "response.output_item.added", "output_index": place,
                         "item": {**item, **empty, "status": "in_progress"}})  # fmt: skip
            if item["type"] == "message":
                part = {**at, "content_index": 0}
                empty_part = {**item["content"][0], "text": ""}
                made.append({"type": "response.content_part.added", **part, "part": empty_part})
                made += [{"type": "response.output_text.delta", **part, "delta": one, "logprobs": []}
                         for one in _pieces(self.text)]  # fmt: skip
                made.append({"type": "response.output_text.done", **part, "text": self.text, "logprobs": []})
                made.append({"type": "response.content_part.done", **part, "part": item["content"][0]})
            else:
                made += [{"type": "response.function_call_arguments.delta", **at, "delta": one}
                         for one in _pieces(item["arguments"])]  # fmt: skip
                made.append({"type": "response.function_call_arguments.done", **at, "name": item["name"],
                             "arguments": item["arguments"]})  # fmt: skip
            made.append({"type": "response.output_item.done", "output_index": place, "item": item})
        made.append({"type": "response.completed", "response": whole})
        for number, one in enumerate(made):
            yield {**one, "sequence_number": number}

    def _responses_events(self) -> Iterator[bytes]:
        for one in self.responses_messages():
            yield _sse(one["type"], one)


ERRORS = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}


class _Coder:
    """Bytes in a coding, flushed after every piece."""

    def __init__(self, coding: str) -> None:
        self.coding = coding
        self._coder: Any = None
        if coding == "gzip":
            import zlib

            self._coder = zlib.compressobj(wbits=31)
            self._mode = zlib.Z_SYNC_FLUSH
        elif coding == "br":
            self._coder = brotli.Compressor()
        elif coding == "zstd":
            self._coder = _zstd()

    def feed(self, data: bytes) -> bytes:
        if self.coding == "gzip":
            return bytes(self._coder.compress(data) + self._coder.flush(self._mode))
        if self.coding == "br":
            return bytes(self._coder.process(data) + self._coder.flush())
        if self.coding == "zstd":
            return bytes(self._coder.compress(data, self._coder.FLUSH_BLOCK))
        return data

    def end(self) -> bytes:
        if self.coding == "br":
            return bytes(self._coder.finish())
        return bytes(self._coder.flush()) if self._coder is not None else b""


def _zstd() -> Any:
    try:
        from compression.zstd import ZstdCompressor
    except ImportError:
        from backports.zstd import ZstdCompressor
    return ZstdCompressor()


def whole_in(coding: str, data: bytes) -> bytes:
    """Data in a coding."""
    if coding == "gzip":
        return gzip.compress(data, mtime=0)
    coder = _Coder(coding)
    return coder.feed(data) + coder.end()


class Connection:
    """One client: requests in, answers out."""

    def __init__(self, server: "ModelServer", sock: socket.socket) -> None:
        self._server = server
        self._sock = sock
        self._held = b""

    def _more(self) -> bool:
        data = self._sock.recv(1 << 18)
        self._held += data
        return bool(data)

    def _until(self, size: int) -> None:
        while len(self._held) < size:
            if not self._more():
                raise OSError("it ended in its body")

    def talk(self) -> None:
        while True:
            while b"\r\n\r\n" not in self._held:
                if not self._more():
                    return
            head, _, self._held = self._held.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            method, target, _version = first.split(" ", 2)
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            if headers.get("upgrade", "").lower() == "websocket":
                self._socket(target, headers)
                return
            body = self._body(headers)
            if method != "POST":
                self._whole(404, b"{}", [])
                continue
            self._answer(target, headers, body)

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while True:
                size = int(self._line(), 16)
                self._until(size + 2)
                body += self._held[:size]
                self._held = self._held[size + 2 :]
                if not size:
                    return body
        size = int(headers.get("content-length", "0"))
        pieces, got = [self._held], len(self._held)
        while got < size:
            data = self._sock.recv(1 << 18)
            if not data:
                raise OSError("it ended in its body")
            pieces.append(data)
            got += len(data)
        whole = b"".join(pieces)
        self._held = whole[size:]
        return whole[:size]

    def _line(self) -> bytes:
        while b"\r\n" not in self._held:
            self._until(len(self._held) + 1)
        line, _, self._held = self._held.partition(b"\r\n")
        return line

    def _call(self, target: str, headers: dict[str, str], body: bytes) -> tuple[Call, str, str]:
        asked = json.loads(body)
        path = target.partition("?")[0]
        api = "anthropic" if path.endswith("/messages") else "chat" if path.endswith("completions") else "responses"
        model = asked.get("model", "text")
        what, _, coding = model.partition("@")
        call = Call(api, target, headers, body, model)
        self._server.keep(call)
        return call, what, coding

    def _answer(self, target: str, headers: dict[str, str], body: bytes) -> None:
        call, what, coding = self._call(target, headers, body)
        coding = coding if coding in headers.get("accept-encoding", "") else ""
        what = self._server.turn_of(call, what)
        if what[:6] == "error-":
            call.status = int(what[6:])
            said = {"type": ERRORS[call.status], "message": f"no: {call.status}", "code": None, "param": None}
            retry = [(b"Retry-After-Ms", b"20"), (b"Retry-After", b"0")] if call.status in (429, 529) else []
            self._whole(call.status, json.dumps({"type": "error", "error": said}).encode(), retry)
            return
        if what == "hang":
            self._hold()
        call.status = 200
        answer = Answer(call, what)
        if not json.loads(body).get("stream"):
            document = whole_in(coding, json.dumps(answer.document(), ensure_ascii=False).encode())
            self._whole(200, document, [(b"Content-Encoding", coding.encode())] if coding else [])
        else:
            self._stream(call, answer, what, coding)
        call.finished = True

    def _hold(self) -> None:
        """Nothing more until the client goes."""
        while self._more():
            pass
        raise CutError(reset=False)

    def _whole(self, status: int, body: bytes, more: list[tuple[bytes, bytes]]) -> None:
        headers = [(b"Content-Type", b"application/json"), (b"Request-Id", b"req_1"),
                   (b"Content-Length", b"%d" % len(body)), *more]  # fmt: skip
        self._sock.sendall(_head(status, headers) + body)

    def _stream(self, call: Call, answer: Answer, what: str, coding: str) -> None:
        headers = [(b"Content-Type", b"text/event-stream; charset=utf-8"), (b"Transfer-Encoding", b"chunked"),
                   (b"Request-Id", b"req_1")]  # fmt: skip
        self._sock.sendall(_head(200, headers + ([(b"Content-Encoding", coding.encode())] if coding else [])))
        coder = _Coder(coding)
        for number, event in enumerate(answer.events()):
            if number == 4:
                self._in_the_middle(call, what, coder)
            self._piece(coder.feed(event), what)
            if what == "slow" and number == 100:
                self._hold()
        if rest := coder.end():
            self._piece(rest, what)
        self._sock.sendall(b"0\r\n\r\n")

    def _in_the_middle(self, call: Call, what: str, coder: _Coder) -> None:
        if what in ("cut", "reset"):
            raise CutError(reset=what == "reset")
        if what == "late-error":
            said = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded", "code": None}}
            if call.api == "responses":
                said = {"type": "error", "code": "server_error", "message": "Overloaded", "sequence_number": 4}
            self._piece(coder.feed(_sse("error" if call.api != "chat" else "", said)), what)
            self._piece(coder.end(), what)
            self._sock.sendall(b"0\r\n\r\n")
            raise CutError(reset=False)

    def _piece(self, data: bytes, what: str) -> None:
        if not data:
            return
        if what == "split":
            # Each byte a chunk of its own, many of them in the middle of a character and of a line.
            for place in range(len(data)):
                self._sock.sendall(b"1\r\n" + data[place : place + 1] + b"\r\n")
            return
        self._sock.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def _socket(self, target: str, headers: dict[str, str]) -> None:
        key = headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest())
        answer = [(b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), (b"Sec-WebSocket-Accept", accept)]
        extensions = []
        if "permessage-deflate" in headers.get("sec-websocket-extensions", ""):
            deflate = PerMessageDeflate()
            agreed = deflate.accept(headers["sec-websocket-extensions"].partition(",")[0])
            words = "permessage-deflate" + (f"; {agreed}" if isinstance(agreed, str) and agreed else "")
            answer.append((b"Sec-WebSocket-Extensions", words.encode()))
            extensions.append(deflate)
        self._sock.sendall(_head(101, answer))
        frames = FrameProtocol(client=False, extensions=extensions)  # type: ignore[arg-type]
        said = ""
        frames.receive_bytes(self._held)
        while True:
            for frame in frames.received_frames():
                if frame.opcode == 8:
                    self._sock.sendall(frames.close(CloseReason.NORMAL_CLOSURE))
                    return
                if frame.opcode == 9:
                    self._sock.sendall(frames.pong(frame.payload))
                    continue
                said += frame.payload if isinstance(frame.payload, str) else bytes(frame.payload).decode()
                if frame.message_finished:
                    self._asked_by_socket(target, headers, said.encode(), frames)
                    said = ""
            data = self._sock.recv(1 << 18)
            if not data:
                return
            frames.receive_bytes(data)

    def _asked_by_socket(self, target: str, headers: dict[str, str], body: bytes, frames: FrameProtocol) -> None:
        call, what, _ = self._call(target, headers, body)
        call.status = 101
        for number, message in enumerate(Answer(call, what).responses_messages()):
            if number == 4 and what in ("cut", "reset"):
                raise CutError(reset=what == "reset")
            self._sock.sendall(frames.send_data(json.dumps(message, ensure_ascii=False), fin=True))
        call.finished = True


def _head(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    return b"HTTP/1.1 %d X\r\n" % status + b"".join(b"%b: %b\r\n" % pair for pair in headers) + b"\r\n"


class ModelServer:
    """Serves `listener`; with a context in TLS."""

    def __init__(self, listener: socket.socket, context: ssl.SSLContext | None = None) -> None:
        self.log: list[Call] = []
        self._turns: Counter[bytes] = Counter()
        self._context = context
        self._listener = listener
        self._lock = threading.Lock()
        self._serving: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def settle(self) -> None:
        """All clients have gone: when this returns, `log` has all that they said."""
        while self._serving:
            self._serving.pop().join()

    def keep(self, call: Call) -> None:
        with self._lock:
            self.log.append(call)

    def turn_of(self, call: Call, what: str) -> str:
        """`retry`: 429, then 529, then as ever; the same again for the same body."""
        if what != "retry":
            return what
        with self._lock:
            turn = self._turns[call.body] % 3
            self._turns[call.body] += 1
        return ("error-429", "error-529", "text")[turn]

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    sock, _ = self._listener.accept()
                except OSError:
                    return
                serving = threading.Thread(target=self._serve, args=(sock,), daemon=True)
                serving.start()
                self._serving.append(serving)

    def _serve(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with sock:
            try:
                if self._context is None:
                    self._talk(sock, sock)
                    return
                if not sock.recv(1, socket.MSG_PEEK):
                    return  # an SSLSocket that meets a reset on its way up is never closed
                inner = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                with inner:
                    inner.do_handshake()
                    self._talk(inner, inner)
            except (OSError, ValueError):
                pass  # the client has gone

    def _talk(self, sock: socket.socket, below: socket.socket) -> None:
        try:
            Connection(self, sock).talk()
        except CutError as cut:
            if cut.reset:
                below.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        far_side.shut(self._listener)
        self._accepting.join(300)
