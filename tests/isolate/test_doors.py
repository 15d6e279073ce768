"""The doors of a call's network as `child/layers/net.py` opens them, in a namespace without Landlock."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.tree import ROOT
from tests.users import as_user

_CODE = """
import errno, os, socket, sys
from fumehood.isolate.child import _uapi_net, _uapi_proc
from fumehood.isolate.child.channel import Channel
from fumehood.isolate.child.layers import net, user
me, uid, gid = user.open_self(), os.geteuid(), os.getegid()
_uapi_proc.unshare(_uapi_proc.CLONE_NEWUSER | _uapi_proc.CLONE_NEWNET)
user.write_maps(me, 0, uid, gid)
ours, theirs = socket.socketpair()
net.open_doors(Channel(theirs), [8080], 3128, True)
_, fds, _, _ = socket.recv_fds(ours, 65536, 64)
opened = [socket.socket(fileno=fd) for fd in fds]
def taken(kind, address):
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, kind)
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        sock.bind(address)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "bound"
places = [("127.0.0.1", 3128), ("0.0.0.0", 3128), ("0.0.0.0", 8080), ("10.0.0.1", 8080), ("::1", 8080)]
print([taken(socket.SOCK_STREAM, place) for place in places], taken(socket.SOCK_DGRAM, ("127.0.0.1", 53)))
for door in (opened[1], opened[2], opened[3]):
    door.listen(1)
    door.shutdown(socket.SHUT_RD)
    door.listen(1)
print([(sock.family.name, sock.type.name) for sock in opened])
"""


def test_no_tool_can_take_the_port_of_a_door_before_it_is_served() -> None:
    argv = [sys.executable, "-c", _CODE]
    for words in [argv] if os.geteuid() else [argv, as_user(argv)]:
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
        refused, kinds = done.stdout.splitlines() or ["", ""]
        assert refused == str(["EADDRINUSE"] * 5) + " EADDRINUSE", done
        assert kinds.count("SOCK_RAW") == 6 and kinds.count("SOCK_STREAM") == 3
