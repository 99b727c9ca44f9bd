"""What a tap is told of its connection, and what it is given to tell and to ask with.

Knows types alone. Refuses to know bytes.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from agentwrap.events.exchange import ExchangeNews

Side = Literal["client", "server"]
Put = Callable[[ExchangeNews], None]
Now = Callable[[], int]
Number = Callable[[], int]
Wanted = Callable[[bytes, bytes, bytes], bool]


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The connection, as its exchanges will name it (fields as in ExchangeBegan).

    `host`: by whose name it was allowed. `intercepted`: TLS was ended here, so the bytes are what was inside.
    """

    connection: str
    span: str
    pid: int
    scheme: Literal["http", "https"]
    host: bytes
    port: int
    intercepted: bool = False
