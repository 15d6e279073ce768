"""Where a request to the proxy door points: authority-form for CONNECT, absolute-form for the rest, and a
Host that agrees.

Guarantees: the target decides; a Host that names another place is refused (RFC 9112 section 3.2.2 would let a
proxy rewrite it, which hides the disagreement from whoever reads a log). Absolute-form is http only: the
broker does not start TLS on a client's behalf.
"""

from __future__ import annotations

from fumehood.broker._head import BadHead, RequestHead
from fumehood.broker._target import BadTarget, Target, host_and_port, parse_authority, parse_url
from fumehood.policies.rules import DEFAULT_PORTS


def proxy_target(head: RequestHead) -> Target:
    """The target of one request to the proxy.

    Raises: BadTarget, BadHead.
    """
    target = parse_authority(head.target) if head.method == "CONNECT" else _absolute(head.target)
    host = head.get("host")
    if host is not None and not agrees(host, target):
        raise BadHead(f"Host {host[:200]!r} differs from the target {target.url[:200]!r}")
    if head.method == "CONNECT" and head.has_body:
        raise BadHead("CONNECT has no body")
    return target


def _absolute(text: str) -> Target:
    if text.startswith("/"):
        raise BadTarget("malformed", "this is a forward proxy: the request line needs the whole URL")
    target = parse_url(text)
    if target.scheme != "http":
        raise BadTarget("scheme", "https goes through CONNECT, so that TLS ends at the host and not here")
    return target


def agrees(host: str, target: Target) -> bool:
    """Whether a Host header names the target, with or without its port (aiohttp and websockets leave it out
    in CONNECT).
    """
    if host == target.authority:
        return True  # letter by letter what it would be read as
    if target.scheme == "tunnel" and host == f"{target.host.text}:{target.port}":
        return True  # an IPv6 address without brackets, as httpx sends it beside a target that has them
    bare = None if target.scheme == "tunnel" else DEFAULT_PORTS[target.scheme]
    try:
        named, port = host_and_port(host)
    except BadTarget:
        return False
    return (
        named == target.host and port in (target.port, None) and (port or bare or target.port) == target.port
    )
