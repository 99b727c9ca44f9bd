"""The official Python clients in many situations: `python sdk_scenarios.py [anthropic] [openai]`; prints what came.

A program of its own, to be run bare and wrapped. Base URLs are in its environment, or it asks the real names.
"""

import asyncio
import base64
import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any

import anthropic
import openai

IMAGE = base64.b64encode(bytes(range(256)) * 40).decode()
BIG = "Was steht in diesem langen Text? 🦜 " * 130_000  # 5 MB
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}
PARALLEL = 50
KEY = "sk-planted-0123456789abcdef0123456789abcdef"
MODELS = (
    *("text", "tools", "long", "split", "text@gzip", "tools@br", "tools@zstd", "long@gzip"),
    *("retry", "error-400", "error-401", "late-error", "cut", "reset"),
)
found: dict[str, Any] = {}


def note(name: str, work: Callable[[], Any]) -> None:
    try:
        found[name] = work()
    except (anthropic.APIError, openai.APIError) as error:
        found[name] = ["failed", type(error).__name__, getattr(error, "status_code", None)]
    except Exception as error:
        found[name] = ["broke", type(error).__name__]


def digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


class Anthropic:
    name = "anthropic"

    def __init__(self) -> None:
        self.client = anthropic.Anthropic(api_key=KEY, timeout=300)
        self.others = anthropic.AsyncAnthropic(api_key=KEY, timeout=300)

    def asked(self, model: str, content: Any) -> dict[str, Any]:
        tools = [{"name": "get_weather", "description": "…", "input_schema": TOOL}]
        return {"model": model, "max_tokens": 100, "tools": tools, "messages": [{"role": "user", "content": content}]}

    @staticmethod
    def told(message: Any) -> Any:
        blocks = [(one.text if one.type == "text" else [one.id, one.name, one.input]) for one in message.content]
        usage = [message.usage.input_tokens, message.usage.output_tokens]
        return [message.id, message.stop_reason, *usage, digest(blocks)]

    def whole(self, client: Any, model: str, content: Any) -> Any:
        return client.messages.create(**self.asked(model, content))

    def stream(self, model: str, content: Any) -> Any:
        with self.client.messages.stream(**self.asked(model, content)) as stream:
            return self.told(stream.get_final_message())

    def begun(self, model: str) -> Any:
        return self.client.messages.create(**self.asked(model, "Go."), stream=True)

    def image(self) -> Any:
        source = {"type": "base64", "media_type": "image/png", "data": IMAGE}
        return [{"type": "image", "source": source}, {"type": "text", "text": "Was ist das?"}]


class Chat:
    name = "chat"

    def __init__(self) -> None:
        self.client = openai.OpenAI(api_key=KEY, timeout=300)
        self.others = openai.AsyncOpenAI(api_key=KEY, timeout=300)

    def asked(self, model: str, content: Any) -> dict[str, Any]:
        tools = [{"type": "function", "function": {"name": "get_weather", "parameters": TOOL}}]
        return {"model": model, "tools": tools, "messages": [{"role": "user", "content": content}]}

    @staticmethod
    def told(message: Any) -> Any:
        choice = message.choices[0]
        calls = [[one.id, one.function.name, one.function.arguments] for one in choice.message.tool_calls or ()]
        usage = [message.usage.prompt_tokens, message.usage.completion_tokens]
        return [message.id, choice.finish_reason, *usage, digest([choice.message.content, calls])]

    def whole(self, client: Any, model: str, content: Any) -> Any:
        return client.chat.completions.create(**self.asked(model, content))

    def stream(self, model: str, content: Any) -> Any:
        asked = {**self.asked(model, content), "stream_options": {"include_usage": True}}
        chunks = list(self.client.chat.completions.create(**asked, stream=True))
        deltas = [one.choices[0].delta.to_dict() for one in chunks if one.choices]
        usage = chunks[-1].usage
        return [chunks[-1].id, usage.prompt_tokens, usage.completion_tokens, digest(deltas)]

    def begun(self, model: str) -> Any:
        return self.client.chat.completions.create(**self.asked(model, "Go."), stream=True)

    def image(self) -> Any:
        return [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}}]


class Responses(Chat):
    name = "responses"

    def asked(self, model: str, content: Any) -> dict[str, Any]:
        tools = [{"type": "function", "name": "get_weather", "parameters": TOOL, "strict": False}]
        return {"model": model, "tools": tools, "input": [{"role": "user", "content": content}]}

    @staticmethod
    def told(message: Any) -> Any:
        items = [getattr(one, "arguments", None) or one.content[0].text for one in message.output]
        ids = [getattr(one, "call_id", "") for one in message.output]
        usage = [message.usage.input_tokens, message.usage.output_tokens]
        return [message.id, message.status, *usage, digest([items, ids])]

    def whole(self, client: Any, model: str, content: Any) -> Any:
        return client.responses.create(**self.asked(model, content))

    def stream(self, model: str, content: Any) -> Any:
        last = None
        deltas = []
        for event in self.client.responses.create(**self.asked(model, content), stream=True):
            deltas.append(getattr(event, "delta", ""))
            last = event
        assert last is not None
        return [digest(deltas), *(self.told(last.response) if last.type == "response.completed" else [last.type])]

    def begun(self, model: str) -> Any:
        return self.client.responses.create(**self.asked(model, "Go."), stream=True)

    def image(self) -> Any:
        return [{"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{IMAGE}"}]

    def by_socket(self, *models: str) -> Any:
        """Several calls over one connection."""
        told = []
        with self.client.responses.connect(max_retries=0) as connection:
            for model in models:
                connection.response.create(**self.asked(model, "Grüße über den Draht 🦜"))
                deltas = []
                for event in connection:
                    deltas.append(getattr(event, "delta", ""))
                    if event.type == "response.completed":
                        told.append([digest(deltas), *self.told(event.response)])
                        break
                else:
                    told.append(["ended", len(deltas)])
        return told


def cancelled(one: Any) -> Any:
    """A stream that is left after five events."""
    stream = one.begun("slow")
    count = 0
    for _ in stream:
        count += 1
        if count == 5:
            break
    (stream.response if hasattr(stream, "response") else stream).close()
    return count


async def parallel(one: Any) -> Any:
    async def call(number: int) -> Any:
        return one.told(await one.whole(one.others, "tools", f"Nummer {number}"))

    return await asyncio.gather(*(call(number) for number in range(PARALLEL)))


def scenarios(one: Any) -> None:
    for model in MODELS:
        note(f"{one.name} {model}", lambda model=model: one.told(one.whole(one.client, model, "Grüße 🦜")))
        note(f"{one.name} {model} stream", lambda model=model: one.stream(model, "Grüße 🦜"))
    note(f"{one.name} image", lambda: one.stream("text", one.image()))
    note(f"{one.name} 5 MB", lambda: one.told(one.whole(one.client, "text", BIG)))
    hasty = one.client.with_options(timeout=0.5, max_retries=0)
    note(f"{one.name} timeout", lambda: one.told(one.whole(hasty, "hang", "Still?")))
    note(f"{one.name} cancelled", lambda: cancelled(one))
    note(f"{one.name} parallel", lambda: asyncio.run(parallel(one)))
    if isinstance(one, Responses):
        note("responses socket", lambda: one.by_socket("text", "tools", "long"))
        note("responses socket cut", lambda: one.by_socket("text", "cut"))


def main() -> None:
    for one in (Anthropic, Chat, Responses):
        if one.name in sys.argv[1:]:
            scenarios(one())
    json.dump(found, sys.stdout, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main()
