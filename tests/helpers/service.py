"""Requests to the service as an application, without a network."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from magus.tui.service.openapi import PATH


async def call(
    app: Any,
    body: bytes | Sequence[bytes],
    method: str = "POST",
    path: str = PATH,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Send one request to an application; return status, document and headers."""
    parts = [body] if isinstance(body, bytes) else list(body)
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }

    async def receive() -> dict[str, Any]:
        if not parts:
            await asyncio.sleep(3600)
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts) or isinstance(body, list)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    with suppress(Exception):  # raised again for the log of the server, behind the answer
        await app(scope, receive, send)
    content = b"".join(each.get("body", b"") for each in sent)
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], json.loads(content) if content else {}, answered
