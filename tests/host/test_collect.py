"""Files that a call leaves in its /tmp are parts of its result: stored, on record, told by `call`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fumehood import Host, load_config
from tests.host.cli import Cli

pytestmark = pytest.mark.anyio

PNG = bytes.fromhex("89504e470d0a1a0a") + bytes(8)
WRITES = (
    "import os\n"
    "def run(input, ctx):\n"
    "    os.mkdir(ctx.tmp + '/out')\n"
    f"    png = {PNG!r}\n"
    "    for name, data in {'out/b.png': png, 'out/a.png': png + b'a', 'out/not.png': b'text',\n"
    "                       'out/c.txt': b'c', 'report': b'%PDF-1.7', 'log.txt': 'ü'.encode()}.items():\n"
    "        with open(ctx.tmp + '/' + name, 'wb') as file:\n"
    "            file.write(data)\n"
    "    if input == 'fail':\n"
    "        raise ValueError('after it had written')\n"
    "    return 1\n"
)


def configured(folder: Path, text: str) -> Path:
    (folder / "tool.py").write_text(WRITES, encoding="utf-8")
    path = folder / "fumehood.toml"
    path.write_text(f'version = 1\n[host]\nstate = "state"\n{text}', encoding="utf-8")
    return path


def part(kind: str, media_type: str, name: str, data: bytes) -> dict[str, object]:
    ref = {"address": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}
    return {"type": kind, "media_type": media_type, "name": name, "source": {"kind": "ref", "ref": ref}}


@pytest.mark.promise("host:files-handed-back")
async def test_what_was_asked_for_is_in_the_store_and_a_part_of_the_result(tmp_path: Path) -> None:
    asked = 'collect = ["out/*.png", "report", "log.txt", "none.txt", "no/*.png"]\n'
    path = configured(tmp_path, f'[tools.t]\nmodule = "tool.py"\n{asked}')
    async with Host(load_config(path)) as host:
        result = await host.call("t", None, principal="alice")
        rows = list(host.log.events(call_id=result.call_id))
        kept = [host.store.get(part["source"]["ref"]["address"]) for part in result.parts or ()]
        owned = host.store.owners(result.parts[0]["source"]["ref"]["address"]) if result.parts else ()
    assert (result.outcome, result.value, result.tainted) == ("ok", 1, None)
    assert result.parts == [
        part("image", "image/png", "out/a.png", PNG + b"a"),
        part("image", "image/png", "out/b.png", PNG),
        part("file", "application/pdf", "report", b"%PDF-1.7"),
        part("file", "text/plain", "log.txt", "ü".encode()),
    ]
    assert kept == [PNG + b"a", PNG, b"%PDF-1.7", "ü".encode()]
    assert set(owned) == {"alice"}
    assert result.uncollected == [
        {"name": "out/not.png", "why": "the bytes do not begin as image/png does"},
        {"name": "none.txt", "why": "there is no such file"},
    ]
    assert [row.kind for row in rows] == ["CALL_STARTED", *["CONTENT_STORED"] * 4, "CALL_ENDED"]
    end = rows[-1].data
    assert isinstance(end, dict)
    assert (end["parts"], end["uncollected"]) == (result.parts, result.uncollected)


@pytest.mark.promise("host:files-handed-back")
async def test_nothing_is_taken_that_was_not_asked_for_or_of_a_call_that_failed(tmp_path: Path) -> None:
    path = configured(
        tmp_path,
        '[tools.plain]\nmodule = "tool.py"\n[tools.asks]\nmodule = "tool.py"\ncollect = ["out/*.png"]\n',
    )
    async with Host(load_config(path)) as host:
        plain = await host.call("plain", None)
        failed = await host.call("asks", "fail")
        kinds = [row.kind for row in host.log.events()]
    assert (plain.outcome, plain.parts, plain.uncollected) == ("ok", None, [])
    assert (failed.outcome, failed.parts, failed.uncollected) == ("tool_error", None, [])
    assert "CONTENT_STORED" not in kinds


@pytest.mark.requirement("R480")
async def test_what_a_tainted_call_left_is_marked_as_untrusted(tmp_path: Path) -> None:
    path = configured(tmp_path, '[tools.t]\nmodule = "tool.py"\ntaint = "always"\ncollect = ["out/b.png"]\n')
    async with Host(load_config(path)) as host:
        result = await host.call("t", None)
    assert result.parts == [
        {**part("image", "image/png", "out/b.png", PNG), "untrusted": {"origin": "tool:t"}},
    ]


def test_a_command_starts_where_its_files_are_looked_for_and_the_files_are_told(cli: Cli) -> None:
    (cli.folder / "fumehood.toml").write_text(
        'version = 1\n[host]\nstate = "state"\n[tools.t]\ncommand = ["sh", "-c", '
        '"printf x > a.txt; ln -s /etc/passwd b.txt; echo done"]\nresult = "text"\ncollect = ["*.txt"]\n',
        encoding="utf-8",
    )
    done = cli("call", "t")
    assert (done.code, done.out) == (0, "done\n")
    address = f"sha256:{hashlib.sha256(b'x').hexdigest()}"
    told = f"file: a.txt: 1 bytes of text/plain: {address}\n"
    assert done.err == f"{told}file not taken: b.txt: it is a link\n"
    explained = cli("explain", "last").out
    assert "Files of the call\n- file: a.txt: 1 bytes of text/plain:" in explained
    assert "- file not taken: b.txt: it is a link\n" in explained
    assert cli("store", "get", address).out == "x"


async def test_a_grant_below_tmp_is_no_file_of_the_call(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept.txt").write_text("the host's", encoding="utf-8")
    below = str(tmp_path / "out").removeprefix("/tmp/")
    path = configured(
        tmp_path,
        f'[tools.t]\nmodule = "tool.py"\nwrite = ["out"]\ncollect = ["{below}/kept.txt", "{below}/*.txt"]\n',
    )
    async with Host(load_config(path)) as host:
        result = await host.call("t", None)
    assert (result.outcome, result.parts) == ("ok", None)
    # The mount went with the call's namespace, and what it covered is not there for others.
    assert result.uncollected == [{"name": f"{below}/kept.txt", "why": "there is no such file"}]
