"""Clients that know nothing of fumehood: what they connect to is the broker, and it decides by name."""

import os
import shutil
import subprocess
import urllib.request


def run(input, ctx):
    url, token = input["url"], f"Bearer {os.environ['METRICS_TOKEN']}"
    found = {"urllib": _urllib(url, token), "httpx": _httpx(url, token), "curl": _curl(url, token)}
    return {name: size for name, size in found.items() if size is not None}


def _urllib(url, token):
    request = urllib.request.Request(url, headers={"Authorization": token})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return len(reply.read())


def _httpx(url, token):
    try:
        import httpx
    except ImportError:
        return None
    return len(httpx.get(url, headers={"Authorization": token}).raise_for_status().content)


def _curl(url, token):
    if shutil.which("curl") is None:
        return None
    done = subprocess.run(
        ["curl", "-sS", "--fail", "-H", f"Authorization: {token}", url],
        capture_output=True,
        check=True,
    )
    return len(done.stdout)
