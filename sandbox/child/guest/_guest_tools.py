"""What a script prints, and what it asks: granted tools as functions, and `fetch`."""

# mypy: ignore-errors
import asyncio
import base64
import io
import json
import sys
import types

import wit_world
from _guest_asyncio import _settle, _Tool, _value_of, _waiting

# what crosses at once: the host copies a string several times over before it can look at its length
PIECE = 64 << 10
STOP = 2  # the "stream" that ends the script with the reason given
_settings = {}  # of the script that runs
_loads, _dumps = json.loads, json.dumps
_encode = json.JSONEncoder(allow_nan=False).encode  # `dumps` makes a new one each time


# --- print ----------------------------------------------------------------------------------------------
# -------------------------
class _Out(io.TextIOBase):
    encoding = "utf-8"
    errors = "replace"

    def __init__(self, stream):
        self.stream = stream
        self.parts = []
        self.size = 0

    def writable(self):
        return True

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.parts.append(text)
        self.size += len(text)
        if self.size > 8192:
            self.flush()
        return len(text)

    def flush(self):
        if self.parts:
            text = "".join(self.parts)
            self.parts.clear()
            self.size = 0
            for start in range(0, len(text), PIECE):
                piece = text[start : start + PIECE]
                wit_world.emit(self.stream, piece.encode("utf-8", "replace").decode("utf-8"))


# --- tools ----------------------------------------------------------------------------------------------
# -------------------------
def _question(name, args, fetch):
    sys.stdout.flush()
    question = _encode(args)
    if len(question) > _settings["bridge_bytes"]:
        wit_world.emit(STOP, "bridge-bytes\n" + name[:256])
    return ("f" if fetch else "t") + name.replace("\n", " ") + "\n" + question


def _start(name, args, fetch):
    """Ask without waiting: a future of the running loop."""
    question = _question(name, args, fetch)
    while len(_waiting) >= _settings["pending"]:  # rather wait for one than end for asking too many
        _settle(wit_world.wait())
    number = wit_world.ask(question)
    future = _waiting[number] = asyncio.get_running_loop().create_future()
    return future


def _ask(name, args, fetch):
    return _value_of(wit_world.call(_question(name, args, fetch)))


def _arguments(name, args, kwargs):
    if len(args) > 1 or (args and kwargs):
        raise TypeError(f"{name}() takes keyword arguments or one dictionary")
    return args[0] if args else kwargs


def _granted(name):
    return _Tool(
        name,
        lambda *args, **kwargs: _ask(name, _arguments(name, args, kwargs), False),
        lambda *args, **kwargs: _start(name, _arguments(name, args, kwargs), False),
    )


tool = _Tool(
    "tool",
    lambda name, /, *args, **kwargs: _ask(str(name), _arguments(name, args, kwargs), False),
    lambda name, /, *args, **kwargs: _start(str(name), _arguments(name, args, kwargs), False),
    "Call a granted tool by name: keyword arguments, or one dictionary.",
)


class Tools:
    """The granted tools as attributes; `tools["a-name"]` for names that Python can't spell."""

    def __init__(self, names):
        for name in names:
            function = _granted(name)
            self.__dict__[name] = self.__dict__[_plain_name(name)] = function
            if "." in name:
                space, rest = name.split(".", 1)
                inner = self.__dict__.setdefault(_plain_name(space), types.SimpleNamespace())
                setattr(inner, _plain_name(rest), function)

    def __getitem__(self, name):
        return self.__dict__[name]

    def __iter__(self):
        return iter(self.__dict__)


def _plain_name(name):
    return name.replace("-", "_").replace(".", "_")


class Reply:
    """What `fetch` gives: status, ok, headers, url, text, body (bytes), json()."""

    def __init__(self, raw):
        self.status = raw["status"]
        self.ok = 200 <= self.status < 300
        self.url = raw["url"]
        self.headers = {k.lower(): v for k, v in raw["headers"]}
        self.body = raw["text"].encode() if "text" in raw else base64.b64decode(raw["base64"])

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def json(self):
        return _loads(self.body)


def _request(url, *, method="GET", headers=None, body=None, json=None):
    headers = dict(headers or {})
    if json is not None:
        body = _dumps(json)
        headers.setdefault("content-type", "application/json")
    if isinstance(body, bytes):
        body = body.decode("utf-8")
    return {"url": str(url), "method": method, "headers": headers, "body": body}


async def _fetched(future):
    return Reply(await future)


fetch = _Tool(
    "fetch",
    lambda url, **options: Reply(_ask("fetch", _request(url, **options), True)),
    lambda url, **options: _fetched(_start("fetch", _request(url, **options), True)),
    "A request through the host's broker: fetch(url, method=, headers=, body=, json=).",
)
