"""Cross-origin requests of browsers (Fetch standard, CORS protocol): only origins that the settings name."""

from __future__ import annotations

from flask import Flask, Response, request

ALLOWED_HEADERS = "Authorization, Content-Type, Last-Event-ID, Prefer, X-Request-Id, traceparent, tracestate"
ALLOWED_METHODS = "GET, POST"
EXPOSED_HEADERS = "Location, Outlast-Run-Key, Preference-Applied, Retry-After, X-Request-Id"
PREFLIGHT_SECONDS = 600


def allowed_origin(origins: tuple[str, ...]) -> str | None:
    """The current request's origin when it may read answers; ``*`` among the settings admits every origin."""
    origin = request.headers.get("Origin")
    if origin is None:
        return None
    return origin if origin.lower() in {known.lower() for known in origins} or "*" in origins else None


def is_preflight() -> bool:
    """Whether a browser asks what it may send; it does so without credentials."""
    return (
        request.method == "OPTIONS"
        and "Origin" in request.headers
        and "Access-Control-Request-Method" in request.headers
    )


def register(app: Flask, origins: tuple[str, ...]) -> None:
    """Answers preflights before anything else and marks all answers; register it before identity."""

    def preflight() -> Response | None:
        if not is_preflight():
            return None
        response = Response(status=204)
        if allowed_origin(origins):
            response.headers["Access-Control-Allow-Methods"] = ALLOWED_METHODS
            response.headers["Access-Control-Allow-Headers"] = ALLOWED_HEADERS
            response.headers["Access-Control-Max-Age"] = str(PREFLIGHT_SECONDS)
        return response

    def mark(response: Response) -> Response:
        if not origins:
            return response
        response.vary.add("Origin")
        origin = allowed_origin(origins)
        if origin is not None:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = EXPOSED_HEADERS
        return response

    app.before_request(preflight)
    app.after_request(mark)
