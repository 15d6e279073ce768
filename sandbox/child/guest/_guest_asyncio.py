"""asyncio without an operating system: waiting takes no time, unless it is for a tool, and several tools
can be on their way at once.
"""

# mypy: ignore-errors
import ast
import asyncio
import inspect
import json

import wit_world

_loads = json.loads


class ToolError(Exception):
    """A granted tool said no. `reason` is a short code, or None."""

    def __init__(self, message, reason=None):
        super().__init__(message)
        self.reason = reason


class _Tool:
    """A function that asks the host: called, it waits; with `start`, it gives a future."""

    def __init__(self, name, now, start, doc=None):
        self.__name__ = self.__qualname__ = name
        self.__doc__ = doc
        self._now = now
        self.start = start

    def __call__(self, /, *args, **kwargs):
        return self._now(*args, **kwargs)

    def __repr__(self):
        return f"<tool {self.__name__}>"


_waiting = {}  # futures of the questions that are open, by number
PATIENCE = 100  # turns of a busy loop before it stops for an answer that something may wait for


def _settle(answer):
    number, _, rest = answer.partition(" ")
    future = _waiting.pop(int(number or 0), None)
    if future is None or future.done():
        return
    try:
        future.set_result(_value_of(rest))
    except ToolError as error:
        future.set_exception(error)


def _value_of(answer):
    value = _loads(answer[1:])
    if answer[:1] != "1":
        raise ToolError(value.get("message") or "the tool failed", value.get("reason"))
    return value


class _NoSelector:
    def __init__(self):
        self.loop = None
        self.turns = 0

    def select(self, timeout=None):
        idle = timeout is None or timeout > 0
        self.turns = 0 if idle else self.turns + 1
        if _waiting and (idle or self.turns > PATIENCE):
            self.turns = 0
            _settle(wit_world.wait())
        elif timeout is None:
            raise Deadlock("the script waits for something that nothing can bring about")
        elif idle:
            self.loop._virtual += timeout
        return []

    def close(self):
        pass


class Deadlock(RuntimeError):
    """Everything waits, and nothing is on its way."""


class _Loop(asyncio.BaseEventLoop):
    def __init__(self):
        self._virtual = 0.0
        self._selector = _NoSelector()
        self._selector.loop = self
        super().__init__()

    def time(self):
        return self._virtual

    def _process_events(self, events):
        pass

    def _write_to_self(self):
        pass


def _run_coroutine(main, *, debug=None, loop_factory=None):
    loop = _Loop()
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        asyncio.events.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        asyncio._set_running_loop(outer)


_ensure_future = asyncio.ensure_future


def _ensure(value, *, loop=None):
    """A tool's result is a plain value, and `await`, `gather` and friends take it all the same."""
    if asyncio.isfuture(value) or asyncio.iscoroutine(value) or inspect.isawaitable(value):
        return _ensure_future(value, loop=loop)
    future = (loop or asyncio.events.get_event_loop()).create_future()
    future.set_result(value)
    return future


_gather, _wait_for = asyncio.gather, asyncio.wait_for


def _coroutine_or_future(value):
    return value if inspect.isawaitable(value) else _passed(value)


asyncio.gather = lambda *values, **options: _gather(*map(_coroutine_or_future, values), **options)
asyncio.wait_for = lambda value, timeout: _wait_for(_coroutine_or_future(value), timeout)
asyncio.create_task = lambda value, **options: asyncio.get_running_loop().create_task(
    _coroutine_or_future(value), **options
)
asyncio.run = asyncio.runners.run = _run_coroutine
asyncio.ensure_future = asyncio.tasks.ensure_future = _ensure
asyncio.new_event_loop = asyncio.events.new_event_loop = _Loop
asyncio.to_thread = asyncio.threads.to_thread = lambda function, /, *args, **kwargs: _passed(
    function(*args, **kwargs)
)


async def _passed(value):
    return value


class _Ready:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __await__(self):
        return self.value
        yield


def _awaitable(value):
    return value if inspect.isawaitable(value) or hasattr(value, "__await__") else _Ready(value)


def _await_call(function, /, *args, **kwargs):
    """`await f(…)`: a tool is asked without waiting here, so that several can be on their way at once."""
    return _awaitable(_start_call(function, *args, **kwargs))


def _start_call(function, /, *args, **kwargs):
    start = getattr(function, "start", None) if type(function) is _Tool else None
    if start is None or asyncio._get_running_loop() is None:
        return function(*args, **kwargs)
    return start(*args, **kwargs)


def _task_call(function, /, *args, **kwargs):
    value = _start_call(function, *args, **kwargs)
    return _answer_of(value) if asyncio.isfuture(value) else value


async def _answer_of(future):
    return await future


class _Awaits(ast.NodeTransformer):
    """`await tool()`, where `tool()` is a plain value otherwise; the same for calls that are handed to
    `gather` and its like.
    """

    TAKE_MANY = frozenset(
        ("gather", "create_task", "ensure_future", "wait", "wait_for", "as_completed", "shield")
    )

    def visit_Await(self, node):
        self.generic_visit(node)
        if isinstance(node.value, ast.Call) and _name_of(node.value.func) not in self.TAKE_MANY:
            node.value = _through("__fumehood_await_call__", node.value)
        else:
            wrapped = ast.Call(ast.Name("__fumehood_await__", ast.Load()), [node.value], [])
            node.value = ast.fix_missing_locations(ast.copy_location(wrapped, node.value))
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        if _name_of(node.func) in self.TAKE_MANY:
            helper = (
                "__fumehood_task_call__"
                if _name_of(node.func) == "create_task"
                else "__fumehood_start_call__"
            )
            node.args = [self._started(argument, helper) for argument in node.args]
        return node

    def _started(self, node, helper):
        if isinstance(node, ast.Call):
            return _through(helper, node)
        if isinstance(node, ast.Starred):
            node.value = self._started(node.value, helper)
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            node.elt = self._started(node.elt, helper)
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            node.elts = [self._started(item, helper) for item in node.elts]
        return node


def _name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def _through(helper, call):
    made = ast.Call(ast.Name(helper, ast.Load()), [call.func, *call.args], call.keywords)
    return ast.fix_missing_locations(ast.copy_location(made, call))
