"""Readiness below the event loop: nobody is woken for a socket that was dropped, closed or given up."""

from __future__ import annotations

import asyncio
import socket

import anyio
import pytest

from fumehood.broker._hub import READ, WRITE, Hub, hub

pytestmark = pytest.mark.anyio


@pytest.fixture
def ends() -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    near.setblocking(False)
    return near, far


def close(*sockets: socket.socket) -> None:
    for sock in sockets:
        sock.close()


async def told(event: asyncio.Event) -> None:
    with anyio.fail_after(5):
        await event.wait()


async def test_a_loop_has_one_hub() -> None:
    assert hub() is hub()


async def test_who_waits_once_is_woken_once(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    with anyio.fail_after(5):
        for word in (b"one", b"two"):  # the second wait finds the entry asleep
            waiting = asyncio.ensure_future(hub().readable(near.fileno()))
            await asyncio.sleep(0)
            assert not waiting.done()
            far.send(word)
            await waiting
            assert near.recv(10) == word
        far.close()
        await hub().readable(near.fileno())
        assert near.recv(10) == b""
    assert repr(hub()) == "<Hub of 0 sockets, 0 waits>"
    close(near)


async def test_a_wait_that_is_given_up_wakes_nobody_not_even_the_numbers_next_owner(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = ends
    waiting = asyncio.ensure_future(hub().readable(near.fileno()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    number = near.fileno()
    near.close()
    again, other = socket.socketpair()
    again.setblocking(False)
    assert number in (again.fileno(), other.fileno())  # the numbers are used again, or this shows nothing
    waiting = asyncio.ensure_future(hub().readable(again.fileno()))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    other.send(b"x")
    with anyio.fail_after(5):
        await waiting
    close(far, again, other)


async def test_a_socket_that_was_waited_on_can_be_watched_and_one_that_was_dropped_is_not_told(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = ends
    far.send(b"x")
    with anyio.fail_after(5):
        await hub().readable(near.fileno())
    readable, writable, other = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def tell(can_read: bool, can_write: bool) -> None:
        if can_read:
            readable.set()
        if can_write:
            writable.set()

    hub().watch(near.fileno(), READ, tell)
    await told(readable)
    assert not writable.is_set()
    hub().change(near.fileno(), WRITE)
    await told(writable)
    readable.clear()
    hub().drop(near.fileno())
    hub().watch(far.fileno(), WRITE, lambda *_: other.set())
    await told(other)
    assert not readable.is_set()
    hub().drop(far.fileno())
    close(near, far)


async def test_an_error_is_told_to_whoever_watches_for_anything(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = ends
    broken = asyncio.Event()
    far.close()
    hub().watch(near.fileno(), READ, lambda can_read, can_write: broken.set() if can_write else None)
    await told(broken)
    hub().drop(near.fileno())
    close(near)


async def test_one_that_fails_does_not_keep_the_others_from_being_told(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = ends
    said: list[str] = []
    other = asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))

    def fail(*_: bool) -> None:
        hub().drop(near.fileno())
        raise ValueError("a fault")

    hub().watch(near.fileno(), WRITE, fail)
    hub().watch(far.fileno(), WRITE, lambda *_: other.set())
    await told(other)
    with anyio.fail_after(5):
        while not said:
            await asyncio.sleep(0)
    assert said == ["a tunnel's callback failed"]
    hub().drop(far.fileno())
    close(near, far)


def test_a_hub_goes_with_its_loop() -> None:
    import gc
    import weakref

    found: list[weakref.ref[Hub]] = []

    async def main() -> None:
        found.append(weakref.ref(hub()))

    asyncio.run(main())
    gc.collect()
    assert found[0]() is None
