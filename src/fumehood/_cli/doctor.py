"""`fumehood doctor`: every layer probed by doing it, and the tier that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fumehood._cli._loop import progress, run_async
from fumehood._cli._output import Output
from fumehood._cli._settings import Settings, pass_settings

if TYPE_CHECKING:
    from fumehood.isolate.doctor import Examination

_RANK = {"none": 0, "any": 0, "landlock": 1, "namespaces": 2}
NOT_REACHED = "not reached"
"""What isolate says of a layer whose turn never came; its remedy is that of the layer that failed."""

_STYLE = {"FULL": None, "PARTIAL": "yellow", "MISSING": "red"}
_TIER_WORDS = {
    "namespaces": "private namespaces, Landlock and seccomp",
    "landlock": "Landlock and seccomp, no namespaces; network only by ctx.fetch",
    "none": "no sandbox can be built here",
}


@click.command()
@pass_settings
@click.pass_context
def doctor(ctx: click.Context, settings: Settings) -> None:
    """What this machine can do: each layer FULL, PARTIAL or MISSING, with reason and remedy.

    Exit code 4 when the tier is below the configuration's require_tier (default: namespaces).
    """
    from fumehood.isolate import doctor as examiner

    required = settings.load_or_default().host.require_tier

    async def examine() -> Examination:
        with progress(settings, "building cages"):
            return await examiner.examine()

    found = run_async(examine())
    met = _RANK[found.tier] >= _RANK[required]
    _print(Output(settings), found, required, met)
    ctx.exit(0 if met else 4)


def _print(out: Output, found: Examination, required: str, met: bool) -> None:
    layers = [(name, layer.level, _reason(layer.detail)) for name, layer in found.layers.items()]
    if out.settings.format == "json":
        told = {
            name: {
                "level": level,
                "reason": why or None,
                "remedy": _REMEDY.get(name) if level != "FULL" and why != NOT_REACHED else None,
            }
            for name, level, why in layers
        }
        trouble = _trouble(found.trouble)
        out.json({"tier": found.tier, "required": required, "met": met, "trouble": trouble, "layers": told})
        return
    if out.settings.quiet:
        layers = [row for row in layers if row[1] != "FULL"]
    if layers:
        out.table(("layer", "level", "reason"), layers, styles=[_STYLE[row[1]] for row in layers])
        out.line()
    remedies: dict[str, list[str]] = {}
    for name, level, why in layers:
        if name in _REMEDY and level != "FULL" and why != NOT_REACHED:
            remedies.setdefault(_REMEDY[name], []).append(name)
    if remedies:
        out.line("What to do", "bold")
        for remedy, names in remedies.items():
            out.hanging(f"{', '.join(names)}: {remedy}", 2)
        out.line()
    out.line(f"tier: {found.tier} ({_TIER_WORDS[found.tier]})", "bold" if met else "bold red")
    if found.trouble:
        out.line(f"why not better: {_trouble(found.trouble)}")
    if not met:
        out.line(f"required: {required} (require_tier); calls are refused on this machine", "red")
        if found.tier == "landlock":
            out.line(f"or else: {_WEAKER}")


def _reason(detail: str) -> str:
    """isolate puts advice behind the reason; here the remedy stands once, below the table."""
    from fumehood.isolate.child.layers.user import REMEDY

    for advice in (REMEDY, "`fumehood doctor` says why this host has no namespaces"):
        detail = detail.replace(advice, "")
    return detail.rstrip(" .;")


def _trouble(text: str | None) -> str | None:
    """Why no better cage could be built, without the advice to run what is running."""
    return (
        None
        if text is None
        else "; ".join(line for line in text.splitlines() if "`fumehood doctor`" not in line)
    )


_NAMESPACES = (
    "allow user namespaces: sysctl user.max_user_namespaces above 0; on Ubuntu 24.04 an "
    "AppArmor profile with `userns,` "
    "for the interpreter; in a container a seccomp profile that lets unshare, mount and pivot_root through, "
    "and an ordinary user, whom that is enough for; root there also lacks CAP_SYS_ADMIN and CAP_SYS_PTRACE "
    "(Docker: --user 1000 --security-opt seccomp=unconfined, as each call has a filter of its own; "
    "where AppArmor is on, also --security-opt apparmor=unconfined)"
)
_WEAKER = (
    'require_tier = "landlock" in [host] lets calls run in what there is; SECURITY.md says what that '
    "leaves open"
)
_LANDLOCK = "Linux 6.12 or newer for all of it, built with Landlock, and `landlock` in the kernel's lsm= list"
_REMEDY = {
    **dict.fromkeys(("user", "mount", "pid", "net", "ipc", "uts", "cgroup-ns"), _NAMESPACES),
    **dict.fromkeys(("landlock-fs", "landlock-net", "landlock-scope"), _LANDLOCK),
    "proc": (
        "show the container the whole /proc (Docker: --security-opt systempaths=unconfined; "
        "Kubernetes: procMount: Unmasked)"
    ),
    "seccomp": "a kernel with seccomp filters, and libseccomp (Debian: apt install libseccomp2)",
    "cgroup-limits": (
        "run as root where it matters; an ordinary user's memory is watched, and RLIMIT_NPROC holds"
    ),
    **dict.fromkeys(
        ("fds", "environment"),
        "none is needed for the tool's sake; to have it checked from outside as well, give the host "
        "CAP_SYS_PTRACE (Docker: --cap-add SYS_PTRACE)",
    ),
    "rlimits": "follows from `user`: allow user namespaces",
    "keyring": "none is needed: seccomp refuses the keyring calls as well",
    "capabilities": "none is needed where no-new-privs is FULL; root empties the bounding set too",
}
"""Layer -> what an operator does about it. One sentence for each cause, not for each layer."""
