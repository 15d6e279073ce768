"""Runs a command on a machine that lacks something: `python tests/host/without.py userns CMD...`.

userns: a seccomp filter refuses new user namespaces, as container runtimes do. landlock: the three Landlock
calls answer ENOSYS, as on a kernel without it.
"""

from __future__ import annotations

import errno
import os
import sys

import pyseccomp

CLONE_NEWUSER = 0x10000000


def main(what: str, *argv: str) -> None:
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    if what == "userns":
        for call in ("unshare", "clone"):
            asked = pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER)
            rules.add_rule(pyseccomp.ERRNO(errno.EPERM), call, asked)
        rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    elif what == "landlock":
        for number in (444, 445, 446):
            rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), number)
    else:
        raise SystemExit(f"without what? {what}")
    rules.load()
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(*sys.argv[1:])
