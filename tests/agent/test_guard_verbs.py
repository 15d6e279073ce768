"""`fumehood guard` and `fumehood store` as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.samples import (
    PDF,
    PNG,
    assistant,
    b64,
    bad,
    call,
    fenced,
    image,
    png,
    ref,
    request,
    result,
    text,
    user,
)

Json = Any


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "fumehood.toml"
    file.write_text('version = 1\n[host]\nstate = "state"\n', encoding="utf-8")
    return file


def run(config: Path, *words: str, stdin: bytes | str = b"") -> tuple[int, bytes, str]:
    command = [sys.executable, "-m", "fumehood", "--config", str(config), *words]
    given = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(command, input=given, capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr.decode()


def guard(config: Path, *words: str, body: Json) -> tuple[int, Json]:
    code, out, err = run(config, "guard", *words, stdin=body if isinstance(body, str) else json.dumps(body))
    assert err == ""
    return code, json.loads(out)


def test_guard_check_prints_the_guarded_request(config: Path, tmp_path: Path) -> None:
    body = request(user(bad("hello")), system="s", capabilities={"image": ["image/*"]})
    expected = {
        "outcome": "ok",
        "request": request(user(fenced("hello")), system="s", capabilities={"image": ["image/*"]}),
    }
    assert guard(config, "check", body=body) == (0, expected)
    assert guard(config, "check", "-", "--format", "json", body=body) == (0, expected)
    file = tmp_path / "request.json"
    file.write_text(json.dumps(body), encoding="utf-8")
    assert guard(config, "check", str(file), body="") == (0, expected)


@pytest.mark.parametrize(
    ("body", "error", "path"),
    [
        (
            request(user("x"), user("y"), assistant([call(input_={"q": bad("z")})])),
            "UntrustedContentError",
            "messages[2].content[0].input.q",
        ),
        (request(user([image(PNG + bytes(70_000))])), "OversizedInlinePartError", "messages[0].content[0]"),
        (request(user([image()])), "UnsupportedModalityError", "messages[0].content[0]"),
        (
            request(user([image()]), capabilities={"audio": ["*"]}),
            "UnsupportedModalityError",
            "messages[0].content[0]",
        ),
        (request(user([result()])), "MessageStructureError", "messages[0].content[0].tool_use_id"),
        ([], "MessageStructureError", ""),
    ],
)
def test_guard_check_prints_the_refusal_and_ends_with_3(
    config: Path, body: Json, error: str, path: str
) -> None:
    code, report = guard(config, "check", body=body)
    assert (code, report["outcome"], report["error"], report["path"]) == (3, "refused", error, path)
    assert set(report) == {"outcome", "error", "path", "message"} and report["message"]


@pytest.mark.parametrize("body", ["", "{", "nope", "[" * 100_000])
def test_what_is_no_json_is_bad_usage(config: Path, body: str) -> None:
    code, out, err = run(config, "guard", "check", stdin=body)
    assert (code, out) == (2, b"") and err.startswith("error: stdin: n")
    code, _, err = run(config, "guard", "check", "/nowhere/x.json")
    assert code == 2 and "No such file" in err
    code, _, err = run(config, "guard", "check", stdin=b"\xff")
    assert code == 2 and "not UTF-8 at byte 0" in err


@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-responses", "gemini"])
def test_guard_render_prints_the_body_for_the_wire(config: Path, provider: str) -> None:
    code, body = guard(
        config,
        "render",
        "--provider",
        provider,
        body=request(user([text(bad("hello")), image()]), system="be kind"),
    )
    assert code == 0
    sent = json.dumps(body)
    assert (
        b64(PNG) in sent
        and json.dumps(fenced("hello")) in sent
        and "be kind" in sent
        and "tainted" not in sent
    )
    refused = guard(
        config, "render", "--provider", provider, "--model", "llama-3", body=request(user([image()]))
    )
    assert (refused[0], refused[1]["error"]) == (3, "UnsupportedModalityError")
    told = request(user([image()]), capabilities={"image": ["*"]})
    assert guard(config, "render", "--provider", provider, "--model", "llama-3", body=told)[0] == 0


def test_guard_render_reads_references_from_the_store(config: Path) -> None:
    code, out, _ = run(config, "store", "put", "-", "--format", "json", stdin=PNG)
    stored = json.loads(out)
    assert code == 0 and stored["size"] == len(PNG) and stored["media_type"] == "image/png"
    code, body = guard(config, "render", "--provider", "gemini", body=request(user([ref(stored["address"])])))
    assert code == 0 and b64(PNG) in json.dumps(body)
    code, body = guard(config, "render", "--provider", "gemini", body=request(user([ref()])))
    assert (code, body["error"], body["path"]) == (3, "UnresolvedContentError", "messages[0].content[0]")


def test_store_put_get_ls_and_sweep(config: Path, tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(png(3, 3))
    code, out, _ = run(config, "store", "put", str(picture), "--owner", "alice")
    address = out.decode().strip()
    assert code == 0 and address.startswith("sha256:")
    assert run(config, "store", "get", address)[1] == png(3, 3)
    code, out, _ = run(config, "store", "ls", "--format", "json")
    item = {"address": address, "size": len(png(3, 3)), "media_type": "image/png", "owners": ["alice"]}
    assert (code, json.loads(out)) == (0, {"items": [item]})
    copy = tmp_path / "copy.png"
    assert run(config, "store", "get", address, "-o", str(copy))[0] == 0 and copy.read_bytes() == png(3, 3)
    got = json.loads(run(config, "store", "get", address, "--format", "json")[1])
    assert got == {
        "address": address,
        "size": len(png(3, 3)),
        "media_type": "image/png",
        "data": b64(png(3, 3)),
    }
    code, out, _ = run(config, "store", "sweep", "--older-than", "0", "--format", "json")
    assert (code, json.loads(out)) == (0, {"pinned": [], "orphans": [address], "erased": [], "leftovers": []})
    code, out, _ = run(config, "store", "sweep", "--older-than", "0", "--reclaim", "--format", "json")
    assert json.loads(out)["erased"] == [address]
    from fumehood.agent import EventLog

    rows = [
        (row.kind, row.data)
        for row in EventLog(tmp_path / "state" / "events.sqlite3", read_only=True).events()
    ]
    told = {
        "address": address,
        "size": len(png(3, 3)),
        "media_type": "image/png",
        "owner": "alice",
        "by": "store put",
    }
    assert rows == [("CONTENT_STORED", told), ("CONTENT_ERASED", {"address": address, "by": "store sweep"})]
    code, _, err = run(config, "store", "get", address)
    assert code == 1 and "no such content here" in err


@pytest.mark.parametrize(
    ("data", "words", "code", "said"),
    [
        (PDF, ["--media-type", "image/png"], 3, "the bytes are application/pdf, not image/png"),
        (b"GIF89a<script >", [], 3, "also hold markup"),
        (b"hello", [], 0, "sha256:"),
        (b"\xff\x00", [], 0, "sha256:"),
        (b"x", ["--media-type", "nonsense"], 2, "is not a media type"),
    ],
)
def test_store_put_judges_media_by_their_bytes(
    config: Path, data: bytes, words: list[str], code: int, said: str
) -> None:
    done = run(config, "store", "put", *words, stdin=data)
    assert done[0] == code and said in done[1].decode() + done[2]


def test_store_get_of_what_is_no_address_is_an_error(config: Path) -> None:
    code, out, err = run(config, "store", "get", "../../etc/passwd")
    assert (code, out) == (2, b"") and "is not a content address" in err


def test_without_a_log_nothing_is_swept(config: Path, tmp_path: Path) -> None:
    from fumehood.agent import ContentStore

    with ContentStore(tmp_path / "state" / "store") as store:
        address = store.put(b"x", "text/plain", owner="alice").address
    code, _, err = run(config, "store", "sweep", "--older-than", "0", "--reclaim")
    assert code == 1 and "there is no such file" in err
    with ContentStore(tmp_path / "state" / "store") as store:
        assert store.get(address) == b"x"
