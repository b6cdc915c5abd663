"""The read-only HTTP API over the last Snapshot: /metrics, /healthz, /api/v1; see docs/api.md."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from rooflens.exporters.http_guard import Guard
from rooflens.exporters.http_push import PATH as PUSH_PATH
from rooflens.exporters.json_view import MOST_STEPS, engines_json, findings_json, problems, roofline_json, steps_json
from rooflens.exporters.plain_json import plain
from rooflens.exporters.prometheus import OPENMETRICS_TYPE, TEXT_TYPE
from rooflens.findings import Code, Status
from rooflens.records import RooflensError

if TYPE_CHECKING:
    from rooflens.exporters.http_push import Push
    from rooflens.exporters.published import Published
    from rooflens.live_records import Snapshot

PATHS = ("/metrics", "/healthz", "/api/v1/engines", "/api/v1/steps", "/api/v1/findings", "/api/v1/roofline")
# What may be asked of the API; anything else is refused, or somebody would take a narrowing for done that was not.
QUERY = {"/api/v1/steps": ("model_name", "engine", "last"), "/api/v1/findings": ("status", "code")}
READ = ["GET", "HEAD"]
STALE_S = 30.0  # thirty turns of the loop: it hangs, and what it said last is no longer so
MOST_NAME_CHARACTERS = 10_000

Name = Annotated[str | None, Query(max_length=MOST_NAME_CHARACTERS)]
Last = Annotated[int, Query(ge=1, le=MOST_STEPS)]


def create_app(published: Published, hosts: frozenset[str], push: Push | None = None) -> Guard:
    """The application over what is ``published``, for requests that name one of ``hosts`` or an address.

    With ``push`` there is a path that takes something in; without it, it is not there.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    _add_pages(app, published)
    _add_api(app, published)
    if push is not None:
        push.add_to(app)
    _add_faults(app, push is not None)
    return Guard(app, hosts)


def _add_pages(app: FastAPI, published: Published) -> None:
    # These two answer from the server's own thread, so that no crowd of other requests holds them up.
    @app.api_route("/metrics", methods=READ)
    async def metrics(accept: Annotated[str, Header()] = "") -> Response:
        _current(published)
        if published.age_s() > STALE_S:
            raise HTTPException(503, f"the last snapshot is {published.age_s():.0f} s old: the sidecar hangs")
        openmetrics = wants_openmetrics(accept)
        kind = OPENMETRICS_TYPE if openmetrics else TEXT_TYPE
        page = published.ready(openmetrics) or await run_in_threadpool(published.page, openmetrics)
        return Response(page, headers={"content-type": kind, "vary": "accept"})

    @app.api_route("/healthz", methods=READ)
    async def healthz() -> Response:
        snapshot, age_s = published.snapshot, published.age_s()
        well = snapshot is not None and age_s <= STALE_S
        return answer(
            {
                "status": "ok" if well else "stale" if snapshot else "starting",
                "snapshot_number": snapshot.number if snapshot else None,
                "snapshot_age_s": round(age_s, 3) if snapshot else None,
                "engines": len(snapshot.engines) if snapshot else None,
                "problems": plain(problems(snapshot)) if snapshot else [],
            },
            200 if well else 503,
        )


def _add_api(app: FastAPI, published: Published) -> None:
    known = [Depends(_known_query)]

    @app.api_route("/api/v1/engines", methods=READ, dependencies=known)
    def engines() -> Response:
        return answer(engines_json(_current(published)))

    @app.api_route("/api/v1/findings", methods=READ, dependencies=known)
    def findings(status: Status | None = None, code: Code | None = None) -> Response:
        return answer(findings_json(_current(published), status, code))

    @app.api_route("/api/v1/steps", methods=READ, dependencies=known)
    def steps(model_name: Name = None, engine: Name = None, last: Last = 100) -> Response:
        return answer(steps_json(_current(published), model_name, engine, last))

    @app.api_route("/api/v1/roofline", methods=READ, dependencies=known)
    def roofline() -> Response:
        return answer(roofline_json(_current(published)))


async def _known_query(request: Request) -> None:
    """400 for a parameter that the path does not know, which names those that it does."""
    known = QUERY.get(request.url.path, ())
    if odd := [name for name in request.query_params if name not in known]:
        there_are = f"there are: {', '.join(known)}" if known else "there are none here"
        raise HTTPException(400, f"unknown parameter {odd[0][:80]!r}; {there_are}")


def _add_faults(app: FastAPI, pushed: bool) -> None:
    paths = (*PATHS, PUSH_PATH) if pushed else PATHS

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        text = error.detail
        if error.status_code == 404:
            text = f"there is nothing here; there are: {' '.join(paths)}"
        elif error.status_code == 405 and pushed and request.url.path == PUSH_PATH:
            return answer({"error": "this path takes in what engines push: POST"}, 405, {"allow": "POST"})
        elif error.status_code == 405:
            return answer({"error": "this API is read-only: GET or HEAD"}, 405, {"allow": ", ".join(READ)})
        return answer({"error": text}, error.status_code)

    @app.exception_handler(RequestValidationError)
    def misunderstood(request: Request, error: RequestValidationError) -> Response:
        faults = "; ".join(f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors())
        return answer({"error": faults}, 422)

    @app.exception_handler(RooflensError)
    def not_found(request: Request, error: RooflensError) -> Response:
        return answer({"error": str(error)}, 404)

    @app.exception_handler(Exception)
    def failed(request: Request, error: Exception) -> Response:
        logging.getLogger(__name__).error("%s failed", request.url.path, exc_info=error)
        return answer({"error": "a fault of rooflens: the sidecar's standard error says which"}, 500)


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """``content`` as one line of JSON."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"
    return Response(text, status, headers, media_type="application/json")


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header asks for OpenMetrics by name, and for plain text no more than for that."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for entry in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        if kind in weights:
            weights[kind] = max(weights[kind], _weight(parameters))
    return 0.0 < weights["application/openmetrics-text"] >= weights["text/plain"]


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _current(published: Published) -> Snapshot:
    if published.snapshot is None:
        raise HTTPException(503, "there is no snapshot yet: the sidecar is starting")
    return published.snapshot
