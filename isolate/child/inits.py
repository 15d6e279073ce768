"""Process 1 of the tool's namespace: makes an init for every call's process namespace, and reaps.

A call's child is never process 1 of its namespace: process 1 ignores the signals whose default would end it,
and OpenSSL takes two processes with one number for the same one. So each call gets a tiny init of its own,
forked from this small process; the zygote joins the namespace and forks the child into it. When a call's init
dies, the kernel kills everything in the namespace (pid_namespaces(7)).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps: its enumerations are pages to copy
import os
import select
import signal
import socket

from . import _uapi_proc

_ENDS = (_signal.SIGCHLD,)


def serve(requests: socket.socket) -> None:
    """Answer every byte on `requests` with two descriptors, (process namespace, pidfd of its init), or with
    the number of the error in decimal, until the zygote closes it.
    """
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    # Every init inherits both. Our own capabilities stay: a bounding set only says what exec may bring back.
    _uapi_proc.prctl(_uapi_proc.PR_SET_NO_NEW_PRIVS, 1)
    _uapi_proc.drop_bounding_set()
    _uapi_proc.collapse_memory()
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == wake_read:
                _drain(wake_read)
                _reap()
                continue
            try:
                if not requests.recv(1):
                    return
                _make_one(requests, own, wake_write)
            except (ConnectionResetError, BrokenPipeError):
                return  # the zygote went with requests unread, or before its init was made: the same end


def _make_one(requests: socket.socket, own: int, wake: int) -> None:
    try:
        namespace, handle = _fork_init(own, wake)
    except OSError as error:  # no process is left to the user or the machine: this call's loss, no other's
        requests.send(str(error.errno).encode())
        return
    socket.send_fds(requests, [b"I"], [namespace, handle])
    os.close(namespace)
    os.close(handle)


def _fork_init(own: int, wake: int) -> tuple[int, int]:
    _uapi_proc.unshare(_uapi_proc.CLONE_NEWPID)
    try:
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _ENDS)
        _signal.set_wakeup_fd(-1)
        _uapi_proc.prctl(_uapi_proc.PR_SET_DUMPABLE, 0)  # here, where it costs the init no page
        try:
            pid = _uapi_proc.fork_bare()
            if pid == 0:
                _be_init()
        finally:
            _uapi_proc.prctl(_uapi_proc.PR_SET_DUMPABLE, 1)
            _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _ENDS)
        # Not /proc/PID/ns/pid: nobody can look into the init.
        namespace = os.open("/proc/self/ns/pid_for_children", os.O_RDONLY | os.O_CLOEXEC)
        return namespace, os.pidfd_open(pid)
    finally:
        _uapi_proc.setns(own, _uapi_proc.CLONE_NEWPID)


def _be_init() -> None:
    """Reap orphans until killed; holds no descriptor, no capability and nothing worth reading.

    The maker's end takes the whole namespace with it; the parent-death signal is for where there is none
    after all. Every call pays for whatever is called here, in pages that are copied.
    """
    try:
        _uapi_proc.close_from(0)
        _uapi_proc.drop_capabilities()
        _uapi_proc.prctl(_uapi_proc.PR_SET_PDEATHSIG, signal.SIGKILL)
        while True:
            _signal.sigwait(_ENDS)
            _reap()
    finally:
        os._exit(71)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        return
