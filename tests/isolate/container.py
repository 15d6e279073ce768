"""Run a command as a default container would: `python -m tests.isolate.container CMD...`, as root.

What Docker and containerd do with their default profile, simulated: fourteen capabilities, a masked /proc (a
directory under tmpfs, a file under /dev/null, /proc/sys read-only), no_new_privs, and a filter that refuses
every namespace, mount, key, bpf, perf, io_uring and userfaultfd call, and answers ENOSYS to clone3.

What options of theirs change comes in variables: CONTAINER_USER (--user), CONTAINER_OPEN with `seccomp` and
`proc` (--security-opt seccomp=unconfined, systempaths=unconfined), CONTAINER_CAPS with numbers (--cap-add).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

import pyseccomp as seccomp

from fumehood.isolate.child import _uapi_mount as mnt
from fumehood.isolate.child import _uapi_proc

# CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW SYS_CHROOT MKNOD
# AUDIT_WRITE SETFCAP
DEFAULT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
NAMESPACE_FLAGS = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
REFUSED = (
    "unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr", "keyctl", "add_key", "request_key", "bpf", "perf_event_open",
    "userfaultfd",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "kexec_load", "reboot", "swapon", "swapoff",
)  # fmt: skip


def mask_proc() -> None:
    """The default masks, in a mount namespace of our own."""
    _uapi_proc.unshare(_uapi_proc.CLONE_NEWNS)
    mnt.make_private()
    mnt.mount("tmpfs", "/proc/irq", "tmpfs", mnt.MS_RDONLY, "size=4k")
    mnt.mount("/dev/null", "/proc/timer_list", None, mnt.MS_BIND)
    mnt.mount("/proc/sys", "/proc/sys", None, mnt.MS_BIND | mnt.MS_REC)
    mnt.mount(None, "/proc/sys", None, mnt.MS_BIND | mnt.MS_REMOUNT | mnt.MS_RDONLY)


def keep_capabilities(added: set[int]) -> None:
    """The fourteen and those that were added, in every set and in the bounding set."""
    kept = {*DEFAULT_CAPABILITIES, *added}
    for capability in range(_uapi_proc.last_capability() + 1):
        if capability not in kept:
            _uapi_proc.prctl(_uapi_proc.PR_CAPBSET_DROP, capability)
    bits = sum(1 << capability for capability in kept)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    data = ctypes.create_string_buffer(struct.pack("6I", low, low, 0, high, high, 0))
    result = ctypes.CDLL(None, use_errno=True).capset(struct.pack("Ii", 0x20080522, 0), data)
    _uapi_proc.checked(result, "capset")


def load_profile() -> None:
    """The filter, and no_new_privs, which libseccomp sets."""
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    for name in REFUSED:
        try:
            rules.add_rule(seccomp.ERRNO(errno.EPERM), name)
        except ValueError:
            continue  # unknown to this libseccomp: the kernel's own check of capabilities refuses it
    for flag in NAMESPACE_FLAGS:
        rules.add_rule(seccomp.ERRNO(errno.EPERM), "clone", seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    rules.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    for family in (38, 40):  # AF_ALG, AF_VSOCK
        rules.add_rule(seccomp.ERRNO(errno.EPERM), "socket", seccomp.Arg(0, seccomp.EQ, family))
    rules.load()


def main(argv: list[str]) -> None:
    opened = os.environ.pop("CONTAINER_OPEN", "").split()
    if "proc" not in opened:
        mask_proc()
    keep_capabilities({int(number) for number in os.environ.pop("CONTAINER_CAPS", "").split()})
    user = os.environ.pop("CONTAINER_USER", None)
    if user is not None:
        os.setgroups([])
        os.setresgid(int(user), int(user), int(user))
        os.setresuid(int(user), int(user), int(user))
    if "seccomp" not in opened:
        load_profile()
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1:])
