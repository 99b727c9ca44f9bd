"""The APIs that are known here, and which of them a request's first line belongs to.

To add one: a file with its reader, and its name below. Pure.
"""

from agentwrap.events import Api
from agentwrap.models.anthropic_messages import AnthropicMessages
from agentwrap.models.gemini_generate import GeminiGenerate
from agentwrap.models.openai_chat import OpenAiChat
from agentwrap.models.openai_responses import OpenAiResponses
from agentwrap.models.shape import Shape

SHAPES: tuple[Shape, ...] = (AnthropicMessages(), OpenAiChat(), OpenAiResponses(), GeminiGenerate())

# What every path of SHAPES has in it: most requests are told apart by this alone.
_MARKS = (b"/messages", b"/completions", b"/responses", b"enerateContent", b"Predict")


def recognise(method: bytes, host: bytes, path: bytes) -> Shape | None:
    """The API that a request calls a model of, None if it calls none. `path`: with or without its query.

    A GET is one only where it opens a WebSocket; whether it does, its headers say.
    """
    path = path.partition(b"?")[0]
    if method not in (b"POST", b"GET") or not any(mark in path for mark in _MARKS):
        return None
    return next((shape for shape in SHAPES if shape.matches(method, host, path)), None)


def by_api(api: Api) -> Shape:
    """The reader of an API. Raises KeyError where there is none."""
    for shape in SHAPES:
        if shape.api == api:
            return shape
    raise KeyError(api)
