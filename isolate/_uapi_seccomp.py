"""The names and numbers of system calls, asked of libseccomp itself.

Not by `ctypes.util.find_library`, which bindings use: it starts ldconfig and compilers. Source:
seccomp_syscall_resolve_name(3), seccomp_arch_add(3).
"""

from __future__ import annotations

import ctypes

_HIGHEST = 512  # above every number that Linux gives out in order


def names() -> dict[str, int]:
    """Every system call that libseccomp knows on this machine. Raises OSError where it is not installed."""
    library = ctypes.CDLL("libseccomp.so.2")
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    library.seccomp_syscall_resolve_num_arch.restype = ctypes.c_void_p
    machine = library.seccomp_arch_native()
    found: dict[str, int] = {}
    for number in range(_HIGHEST):
        name = library.seccomp_syscall_resolve_num_arch(machine, number)
        if name:  # else there is no such number on this machine, or it is newer than the library
            found[ctypes.string_at(name).decode()] = number
            free(name)
    return found
