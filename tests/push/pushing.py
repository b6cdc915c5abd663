"""A sender on the standard library alone: bodies of steps, as any language would send them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

PATIENCE_S = 30.0
TOKEN = "sesame-open-the-door-4321"
FACTS: dict[str, Any] = {"model_name": "made", "block_tokens": 16, "weight_dtype": "bfloat16", "kv_blocks": 4096}


def step(at_s: float, seconds: float = 0.005, **given: Any) -> dict[str, Any]:
    """One step that began at ``at_s``; two sequences unless told otherwise."""
    return {"submit_s": at_s, "output_s": at_s + seconds, "contexts": [100, 200], **given}


def body(instance: str = "run-1", sent_s: float = 100.0, **given: Any) -> dict[str, Any]:
    return {"version": 1, "instance": instance, "engine": "made-up", "sent_s": sent_s, "facts": FACTS, **given}


def raw(given: Any) -> bytes:
    return json.dumps(given).encode()


def post(
    url: str, data: bytes, token: str | None = TOKEN, **headers: str
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, object and headers (in lower case) of the answer."""
    named = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if token is not None:
        named["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{url}/api/v1/push", data=data, headers=named)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            status, text, found = answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        status, text, found = error.code, error.read(), error.headers
    assert text.count(b"\n") == 1
    return status, json.loads(text), {name.lower(): value for name, value in found.items()}
