"""What a server may take a request for beyond its first line: field names that read alike, and fields that
override method or path.

Guarantees: a request is allowed only when all that it may mean is. Frameworks obey `X-HTTP-Method-Override`
(Rails, Google's APIs), `X-Original-URL` (Symfony, IIS) and their like; CGI and WSGI read `X_Api_Key` as
`X-Api-Key`. Pure.
Not here: overrides in a query or a body, which no rule speaks of.
"""

from __future__ import annotations

from dataclasses import replace

from fumehood.broker._decide import match
from fumehood.broker._target import BadTarget, parse_url, readable
from fumehood.broker._types import EgressPolicy, EgressRequest

_METHOD = frozenset({"x-http-method-override", "x-http-method", "x-method-override"})
_PATH = frozenset({"x-original-url", "x-rewrite-url", "x-override-url"})


def alike(name: str) -> str:
    """A field's name as the least careful server reads it."""
    return name.lower().replace("_", "-")


def wrongly_meant(
    policy: EgressPolicy, request: EgressRequest, headers: tuple[tuple[str, str], ...]
) -> tuple[str, str] | None:
    """Reason and detail when a server may take an allowed request for one that the policy refuses."""
    try:
        meant_all = _meanings(request, headers)
    except BadTarget as bad:
        return bad.reason, bad.what
    for meant in meant_all:
        reason = match(policy, meant).reason
        if reason is not None:
            return reason, f"an override header makes it {meant.method} {readable(meant.target.path, 100)}"
    return None


def _meanings(request: EgressRequest, headers: tuple[tuple[str, str], ...]) -> list[EgressRequest]:
    """What else a server may take `request` for; empty for nearly every request.

    Raises: BadTarget when an override names a place that cannot be read, or another origin.
    """
    found = [(alike(name), value.strip()) for name, value in headers if name[:1] in "xX"]
    found = [(name, value) for name, value in found if name in _METHOD or name in _PATH]
    if not found:
        return []
    methods = [value.upper() for name, value in found if name in _METHOD]
    targets = [request.target]
    for name, value in found:
        if name in _PATH:
            target = request.target
            text = f"{target.scheme}://{target.authority}{value}" if value.startswith("/") else value
            meant = parse_url(text)
            if meant.origin != target.origin:
                raise BadTarget("malformed", f"{name} names another origin, {meant.url[:200]!r}")
            targets.append(meant)
    return [
        replace(request, target=target, method=method)
        for target in targets
        for method in (request.method, *methods)
        if (target, method) != (request.target, request.method)
    ]
