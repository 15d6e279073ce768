"""Process 1 of the tool's namespace: makes an init for every call's process namespace, and reaps.

A call's child is never process 1 of its namespace: process 1 ignores the signals whose default would end it,
and OpenSSL takes two processes with one number for the same one. So each call gets a tiny init of its own,
forked from this small process; the zygote joins the namespace and forks the child into it. When a call's init
dies, the kernel kills everything in the namespace (pid_namespaces(7)).
"""

from __future__ import annotations

import os
import select
import signal
import socket

from . import _uapi_proc


def serve(requests: socket.socket) -> None:
    """Answer every byte on `requests` with two descriptors, (process namespace, pidfd of its init), until the
    zygote closes it.
    """
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    # Every init inherits both. Our own capabilities stay: a bounding set only says what exec may bring back.
    _uapi_proc.prctl(_uapi_proc.PR_SET_NO_NEW_PRIVS, 1)
    _uapi_proc.drop_bounding_set()
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
                _make_one(requests, own)
            except (ConnectionResetError, BrokenPipeError):
                return  # the zygote went with requests unread, or before its init was made: the same end


def _make_one(requests: socket.socket, own: int) -> None:
    _uapi_proc.unshare(_uapi_proc.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        _be_init()
    # Not /proc/PID/ns/pid: the init makes itself unreadable at its own pace.
    namespace = os.open("/proc/self/ns/pid_for_children", os.O_RDONLY | os.O_CLOEXEC)
    handle = os.pidfd_open(pid)
    _uapi_proc.setns(own, _uapi_proc.CLONE_NEWPID)
    socket.send_fds(requests, [b"I"], [namespace, handle])
    os.close(namespace)
    os.close(handle)


def _be_init() -> None:
    """Reap orphans until killed; holds no descriptor, no capability and nothing worth reading."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        signal.set_wakeup_fd(-1)
        _uapi_proc.close_from(0)
        _uapi_proc.drop_capabilities()
        _uapi_proc.prctl(_uapi_proc.PR_SET_DUMPABLE, 0)
        # getppid() is 0 here: the parent is outside this namespace, so there is nothing to compare with. The
        # maker's own death takes the whole namespace with it in any case.
        _uapi_proc.prctl(_uapi_proc.PR_SET_PDEATHSIG, signal.SIGKILL)
        while True:
            signal.sigwait([signal.SIGCHLD])
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
