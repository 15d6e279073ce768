"""The client matrix: package managers, unmodified, with an allowed registry and a refused one."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path

import pytest

from fumehood.broker import proxy_environment
from fumehood.testing.dns import Said
from fumehood.testing.http import Reply, Seen
from tests.broker.clients import needed
from tests.broker.test_transparent import caged
from tests.broker.world import PUBLIC, World

pytestmark = pytest.mark.anyio
NAMES: dict[str, Said] = {"*": [PUBLIC], "inside.example.com": ["10.0.0.1"]}
POLICY = (
    "https://*.example.com",
    "http://plain.example.com",
    "http://inside.example.com",
    "tcp://db.example.com:5432",
    "cache.example.com:6379",
    "tcp://git.example.com:22",
    "ws://plain.example.com:8080",
)
PORTS = (443, 80, 5432, 6379, 22, 8080)


def a_wheel() -> bytes:
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("tiny.py", "x = 1\n")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr(
            "tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr("tiny-1.0.dist-info/RECORD", "")
    return out.getvalue()


async def test_pip_installs_from_an_allowed_index_and_explains_a_refused_one(
    world: World, tmp_path: Path
) -> None:
    def index(seen: Seen) -> Reply:
        if seen.path.endswith(".whl"):
            return Reply(200, a_wheel())
        return Reply(
            200,
            b'<a href="/tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>',
            (("Content-Type", "text/html"),),
        )

    world.serve(443, index, tls=True)
    world.name(NAMES)
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--isolated",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--retries=0",
    )
    async with caged(world, *POLICY, ports=PORTS) as (call, namespace):
        for env in ({}, proxy_environment(3128)):
            target = str(tmp_path / f"out{len(env)}")
            good = await namespace.run(
                *pip,
                f"--cert={world.trust}",
                "install",
                "-q",
                "--no-deps",
                "-t",
                target,
                "-i",
                "https://pypi.example.com/simple",
                "tiny",
                env=env,
                timeout=90,
            )
            assert good.code == 0 and Path(target, "tiny.py").exists(), good
        # Of an index pip says only that nothing matched; a direct link shows the reason.
        words = ("install", "https://evil.test/tiny-1.0-py3-none-any.whl")
        refused = await namespace.run(*pip, f"--cert={world.trust}", *words, env=proxy_environment(3128))
        assert refused.code != 0 and "EGRESS_DENIED not-listed" in refused.out + refused.err, refused


def a_tarball() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as file:
        body = json.dumps({"name": "tiny", "version": "1.0.0"}).encode()
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(body)
        file.addfile(entry, io.BytesIO(body))
    return out.getvalue()


async def test_npm_installs_from_an_allowed_registry_and_shows_the_reason_of_a_refused_one(
    world: World, tmp_path: Path
) -> None:
    needed("npm")

    def registry(seen: Seen) -> Reply:
        if seen.path.endswith(".tgz"):
            return Reply(200, a_tarball())
        version = {
            "name": "tiny",
            "version": "1.0.0",
            "dist": {"tarball": "https://npm.example.com/tiny-1.0.0.tgz"},
        }
        return Reply.json({"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}})

    world.serve(443, registry, tls=True)
    world.name(NAMES)
    base = (
        "--no-audit",
        "--no-fund",
        "--fetch-retries=0",
        "--no-update-notifier",
        f"--cache={tmp_path / 'cache'}",
    )
    async with caged(world, *POLICY, ports=PORTS) as (call, namespace):
        npm = ("npm", "install", *base, f"--prefix={tmp_path / 'app'}", f"--cafile={world.trust}")
        good = await namespace.run(*npm, "--registry=https://npm.example.com/", "tiny", timeout=90)
        assert good.code == 0 and (tmp_path / "app/node_modules/tiny/package.json").exists(), good
        refused = await namespace.run(*npm, "--registry=https://evil.test/", "other", timeout=90)
        assert refused.code != 0 and "ENOTFOUND" in refused.err
        proxied = await namespace.run(
            *npm, "--registry=https://evil.test/", "other", timeout=90, env=proxy_environment(3128)
        )
        assert proxied.code != 0 and "403" in proxied.err, proxied
