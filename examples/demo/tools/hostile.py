"""Tries what a stolen tool would try. Each attempt returns what it got; the sandbox should leave nothing."""

import ctypes
import glob
import os
import socket
import time


async def run(input, ctx):
    attempt = globals()["try_" + input["attempt"].replace("-", "_")]
    found = attempt(input, ctx)
    return await found if hasattr(found, "__await__") else found


async def try_other_host(input, ctx):
    return (await ctx.fetch(input["url"])).text


async def try_metadata(input, ctx):
    return (await ctx.fetch("http://169.254.169.254/latest/meta-data/iam/")).text


def try_raw_socket(input, ctx):
    with socket.create_connection(tuple(input["address"]), timeout=2) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return connection.recv(100).decode()


def try_credential(input, ctx):
    places = [*glob.glob("/proc/*/environ"), *input["paths"]]
    return {"IMAGES_TOKEN": os.environ.get("IMAGES_TOKEN"), "files": _readable(places, b"IMAGES_TOKEN=")}


def try_environment(input, ctx):
    return {"environ": sorted(os.environ), "parent": _readable([f"/proc/{os.getppid()}/environ"], b"")}


def try_shadow(input, ctx):
    with open("/etc/shadow") as file:
        return file.readline()


def try_overwrite(input, ctx):
    with open(input["path"], "w") as file:
        file.write("was here")
    return input["path"]


def try_fork(input, ctx):
    """A grandchild in a session of its own that would go on for a day after the call."""
    if os.fork() == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(15, input["name"].encode())  # PR_SET_NAME
        time.sleep(86400)
        os._exit(0)
    time.sleep(0.3)
    return "forked"


def try_loop(input, ctx):
    while True:
        pass


def _readable(paths, wanted):
    found = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                if wanted in file.read():
                    found.append(path)
        except OSError:
            pass
    return found
