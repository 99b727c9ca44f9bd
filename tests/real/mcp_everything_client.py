"""An MCP client that does what the conformance suite asks of one, on the PyPI package `mcp`.

    python mcp_everything_client.py URL         the suite says in the environment which of its scenarios it is
    python mcp_everything_client.py SOCKET      is such a client for each that asks there (mcp_everything_ask.py)
"""

import asyncio
import json
import os
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import mcp_types as types
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata

warnings.simplefilter("ignore")

SCENARIO = ""
CONTEXT: dict[str, Any] = {}
MODERN = False
AT_ONCE = 4
BACK = "http://localhost:3030/callback"


class Kept:
    """Tokens and what the client is registered as."""

    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


class Browser:
    """A user who agrees at once."""

    query: dict[str, list[str]]

    async def visit(self, url: str) -> None:
        async with httpx2.AsyncClient(timeout=None) as web:
            answer = await web.get(url, follow_redirects=False)
        self.query = parse_qs(urlsplit(answer.headers["location"]).query)

    async def result(self) -> AuthorizationCodeResult:
        found = {name: values[0] for name, values in self.query.items() if name in ("code", "state", "iss")}
        return AuthorizationCodeResult(**found)


def authority(url: str) -> Any:
    kept, browser = Kept(), Browser()
    metadata = OAuthClientMetadata(
        client_name="everything", redirect_uris=[BACK], grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )  # fmt: skip
    if SCENARIO.startswith("auth/client-credentials"):
        who: dict[str, Any] = {"server_url": url, "storage": kept, "client_id": CONTEXT["client_id"]}
        if "private_key_pem" not in CONTEXT:
            return ClientCredentialsOAuthProvider(**who, client_secret=CONTEXT["client_secret"])
        signed = SignedJWTParameters(
            issuer=CONTEXT["client_id"], subject=CONTEXT["client_id"], signing_key=CONTEXT["private_key_pem"],
            signing_algorithm=CONTEXT["signing_algorithm"],
        )  # fmt: skip
        return PrivateKeyJWTOAuthProvider(**who, assertion_provider=signed.create_assertion_provider())
    if SCENARIO == "auth/pre-registration":
        kept.client = OAuthClientInformationFull(
            client_id=CONTEXT["client_id"], client_secret=CONTEXT["client_secret"], redirect_uris=[BACK],
            token_endpoint_auth_method="client_secret_basic", issuer=CONTEXT.get("issuer"),
        )  # fmt: skip
    return OAuthClientProvider(
        url, metadata, kept, browser.visit, browser.result,
        client_metadata_url="https://conformance-test.local/client-metadata.json",
    )  # fmt: skip


def filled(schema: dict[str, Any]) -> dict[str, Any]:
    """Some value for each that is required."""
    by_type = {"string": "x", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    properties = schema.get("properties", {})
    return {name: by_type.get(properties.get(name, {}).get("type"), "x") for name in schema.get("required", [])}


async def elicited(_context: Any, params: Any) -> types.ElicitResult:
    properties = (params.requested_schema or {}).get("properties", {})
    told = {name: one["default"] for name, one in properties.items() if "default" in one}
    return types.ElicitResult(action="accept", content=told or filled(params.requested_schema or {}))


async def sampled(_context: Any, _params: Any) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="Paris")
    return types.CreateMessageResult(role="assistant", content=content, model="none")


async def rooted(_context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///work")])


async def work(url: str) -> None:
    auth = authority(url) if SCENARIO.startswith("auth/") else None
    listens = asyncio.Event()

    async def answered(answer: httpx2.Response) -> None:
        if answer.request.method == "GET":
            listens.set()

    hooks = {"response": [answered]}
    async with httpx2.AsyncClient(auth=auth, timeout=None, follow_redirects=True, event_hooks=hooks) as web:
        transport = streamable_http_client(url, http_client=web)
        client = Client(
            transport, mode="auto" if MODERN else "legacy", elicitation_callback=elicited,
            sampling_callback=sampled, list_roots_callback=rooted,
        )  # fmt: skip
        async with client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            asked = CONTEXT.get("toolCalls") or [
                {"name": name, "arguments": {"a": 5, "b": 3} if name == "add_numbers" else filled(tool.input_schema)}
                for name, tool in tools.items()
            ]
            if SCENARIO == "sse-retry" and not MODERN:
                await listens.wait()  # a stream of its own that is late would bring what it is to come back for
            for one in asked:
                try:
                    print(await client.call_tool(one["name"], one["arguments"]))
                except Exception as error:
                    print("failed", one["name"], repr(error), file=sys.stderr)


def be(url: str, environment: Mapping[str, str]) -> int:
    """One client."""
    global SCENARIO, CONTEXT, MODERN
    SCENARIO = environment.get("MCP_CONFORMANCE_SCENARIO", "")
    CONTEXT = json.loads(environment.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    MODERN = environment.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "") >= "2026"
    try:
        asyncio.run(work(url))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def be_many(path: str) -> None:
    """A process for each client, all of this one; a few at a time, since the suite has no patience with slow ones."""
    busy = 0
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(100)
        print("ready", flush=True)
        while True:
            if busy == AT_ONCE:
                os.wait()
                busy -= 1
            link, _ = listener.accept()
            if os.fork():
                busy += 1
                link.close()
                continue
            asked = b""
            while piece := link.recv(65536):
                asked += piece
            url, environment = json.loads(asked)
            with tempfile.TemporaryFile() as said:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                status = be(url, environment)
                sys.stdout.flush()
                said.seek(0)
                link.sendall(b"%d\n" % status + said.read())
            os._exit(0)


if __name__ == "__main__":
    if sys.argv[1].startswith("/"):
        be_many(sys.argv[1])
    sys.exit(be(sys.argv[1], os.environ))
