"""What a tunnel may carry, given the entries that let it through: the check of the TLS server name, pure.

Guarantees: behind an `https` entry only TLS whose server name is the decided host passes; a literal needs
none and must not name another host; behind `host:port` (any protocol) TLS with another name is refused as
well, since nothing honest sends one; `tcp://` is not looked into.
"""

from __future__ import annotations

from fumehood.broker._target import Target
from fumehood.policies.rules import EgressRule


def check_server_name(rule: EgressRule | None, target: Target, name: str | None) -> str | None:
    """What is wrong with a ClientHello that carries `name` in a tunnel to `target` under `rule`; None when it
    may pass.

    name: lower case, as it stands in the hello; None when there is none.
    """
    if rule is not None and rule.scheme == "tcp":
        return None
    if name is None:
        needs_name = not target.host.is_literal and (rule is None or rule.scheme != "any")
        return f"the TLS hello names no server; it must name {target.host.text}" if needs_name else None
    if name == target.host.text:
        return None
    return f"the TLS hello names {name[:253]!r}, and the connection was decided for {target.host.text!r}"
