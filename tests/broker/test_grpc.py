"""gRPC through `+inspect`: grpcio's client in the cage, grpcio's server as the host, every kind of call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import anyio
import grpc
import pytest

from tests.broker.test_inspect import trusting
from tests.broker.test_transparent import caged
from tests.broker.world import PUBLIC, World, policy

pytestmark = pytest.mark.anyio
SECRET = "s3cret-value"


class Service(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """Calls by kind, with bytes as messages."""

    def __init__(self) -> None:
        self.keys: set[str | None] = set()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        self.keys.add(dict(details.invocation_metadata).get("x-api-key"))
        kinds = {
            "/t.T/Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "/t.T/Down": grpc.unary_stream_rpc_method_handler(self.down),
            "/t.T/Both": grpc.stream_stream_rpc_method_handler(self.both),
            "/t.T/Fails": grpc.unary_unary_rpc_method_handler(self.fails),
        }
        return kinds.get(details.method)

    def unary(self, message: bytes, context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata(
            (("x-last", "trailer"), ("x-key", dict(context.invocation_metadata())["x-api-key"]))
        )
        return message[::-1]

    def down(self, message: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        for number in range(int(message)):
            yield b"%d" % number * 10_000

    def both(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        for message in messages:
            yield message.upper()

    def fails(self, message: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
        return b""


@contextmanager
def grpc_host(world: World, service: Service) -> Iterator[int]:
    leaf = world.authority.ca.issue_cert("api.example.com")
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    server = grpc.server(ThreadPoolExecutor(8), handlers=(service,))
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(leaf.private_key_pem.bytes(), chain)])
    )
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


CLIENT = """
import grpc, json, queue
out = {}
with grpc.secure_channel("api.example.com:443", grpc.ssl_channel_credentials()) as channel:
    reply, call = channel.unary_unary("/t.T/Unary").with_call(b"abc" * 100_000, timeout=20)
    out["unary"] = [reply == b"cba" * 100_000, dict(call.trailing_metadata())]
    out["down"] = [len(m) for m in channel.unary_stream("/t.T/Down")(b"30", timeout=20)]
    turns = queue.SimpleQueue()
    answers = channel.stream_stream("/t.T/Both")(iter(turns.get, None), timeout=20)
    heard = []
    for word in (b"one", b"two", b"three"):
        turns.put(word)
        heard.append(next(answers).decode())
    turns.put(None)
    out["both"] = [heard, len(list(answers))]
    many = [channel.unary_unary("/t.T/Unary").future(b"%d" % n, timeout=20) for n in range(50)]
    out["many"] = sum(f.result() == (b"%d" % n)[::-1] for n, f in enumerate(many))
    for method in ("/t.T/Fails", "/other.S/Unary"):
        try:
            channel.unary_unary(method)(b"x", timeout=20)
        except grpc.RpcError as error:
            out[method] = [error.code().name, error.details()]
print(json.dumps(out))
"""


@pytest.mark.promise("broker:grpc-passes-inspection")
async def test_every_kind_of_grpc_call_passes_and_a_refused_one_says_why(
    world: World, tmp_path: Path
) -> None:
    world.name({"*": [PUBLIC]}, ttl=60)
    service = Service()
    rule = {
        "host": "api.example.com",
        "methods": ["POST"],
        "paths": ["/t.T/"],
        "inspect": True,
        "secret": {"header": "X-Api-Key", "value": "{KEY}"},
    }
    with grpc_host(world, service) as port:
        async with caged(world, "https://api.example.com") as (call, namespace):
            call.update_policy(policy(rule))
            call.broker.secrets = {"KEY": SECRET}.__getitem__
            call.broker.dialer._map = lambda *_: ("127.0.0.1", port)
            trusting(namespace, call.broker.authority, tmp_path)
            with anyio.fail_after(60):
                done = await namespace.python(CLIENT)
    said = json.loads(done.out or "null")
    assert said is not None, done
    assert said["unary"] == [True, {"x-last": "trailer", "x-key": "*" * len(SECRET)}]
    assert said["down"] == [10_000 * len(str(number)) for number in range(30)]
    assert said["both"] == [["ONE", "TWO", "THREE"], 0]
    assert said["many"] == 50
    assert said["/t.T/Fails"] == ["NOT_FOUND", "no such thing"]
    code, details = said["/other.S/Unary"]
    assert code == "PERMISSION_DENIED" and "EGRESS_DENIED path" in details, said
    assert service.keys == {SECRET}
    assert SECRET not in json.dumps(world.journal.events)
