"""What a hostile or clumsy Python script may try, and the endings that are right for it."""

# ruff: noqa: E501
from __future__ import annotations

from tests.sandbox.attacks_js import MEMORY, OK, OUTPUT, STACK, THROWN, TIMEOUT, Attack

CPU = ("limit", "cpu")
GONE = "ModuleNotFoundError"
NO = "PermissionError"

ATTACKS = (
    # --- time ---
    Attack("an endless loop", "while True: pass", (TIMEOUT,)),
    Attack("a huge power", "x = 10 ** 10 ** 8", (TIMEOUT, MEMORY)),
    Attack("a huge factorial", "import math\nmath.factorial(10 ** 7)", (TIMEOUT, MEMORY)),
    Attack("a regular expression that backtracks", "import re\nre.match(r'(a+)+$', 'a' * 40 + '!')", (TIMEOUT,)),
    Attack("an endless __del__", "class D:\n  def __del__(self):\n    while True: pass\nD()\n1", (TIMEOUT, OK), value=1),
    Attack("atexit", "import atexit\n@atexit.register\ndef f():\n  while True: pass\n1", (OK, THROWN), value=1),
    Attack("an endless __str__ in the error", "class E(Exception):\n  def __str__(self):\n    while True: pass\nraise E()", (TIMEOUT,)),
    Attack("an endless __repr__ printed", "class E:\n  def __repr__(self):\n    while True: pass\nprint(E())", (TIMEOUT,)),
    Attack("catching everything and going on", "while True:\n  try:\n    while True: pass\n  except BaseException: pass", (TIMEOUT,)),
    Attack("sleeping", "import time\ntime.sleep(3)", (THROWN,), error=NO),
    Attack("sleeping by select", "import select\nselect.select([], [], [], 2)", (THROWN,), error=GONE),
    Attack("sleeping in asyncio takes no time", "import asyncio\nawait asyncio.sleep(3600)\n7", (OK,), value=7),
    Attack("an endless asyncio loop", "import asyncio\nasync def f():\n  while True: await asyncio.sleep(0)\nawait f()", (TIMEOUT,)),
    Attack("a zip bomb", "import zlib\nd = zlib.compress(b'0' * 10**7)\nx = [zlib.decompress(d) for _ in range(1000)]", (MEMORY, TIMEOUT)),
    Attack("int from a long string", "int('9' * 10**6)", (THROWN,), error="ValueError"),
    Attack("waiting for a tool that never answers", "tools.never()", (TIMEOUT,)),
    # --- memory ---
    Attack("byte arrays for ever", "a = []\nwhile True: a.append(bytearray(1 << 20))", (MEMORY,)),
    Attack("one byte array of eight gigabytes", "bytearray(8 << 30)", (MEMORY, THROWN)),
    Attack("strings that double", "s = 'x'\nwhile True: s += s", (MEMORY,)),
    Attack("out of memory, caught, and going on", "a = []\ntry:\n  while True: a.append(bytearray(1 << 20))\nexcept MemoryError:\n  n = len(a)\n  a.clear()\nn > 10", (OK,), value=True),
    Attack("a dictionary for ever", "d = {}\ni = 0\nwhile True:\n  i += 1\n  d[i] = i", (MEMORY, TIMEOUT)),
    # --- stack ---
    Attack("recursion", "def f(): f()\nf()", (THROWN,), error="RecursionError"),
    Attack("recursion without a limit", "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", (STACK, MEMORY, THROWN)),
    Attack("a deep list printed", "a = []\nfor _ in range(100000): a = [a]\nrepr(a)", (STACK, THROWN)),
    Attack("a deep list as the result", "a = []\nfor _ in range(100000): a = [a]\na", (STACK, THROWN)),
    Attack("a hundred thousand brackets", "compile('(' * 100000 + ')' * 100000, 'x', 'eval')", (STACK, THROWN, MEMORY)),
    Attack("a long sum", "eval('+'.join(['1'] * 200000))", (STACK, THROWN, MEMORY, TIMEOUT)),
    Attack("a deep pickle", "import pickle\na = []\nfor _ in range(100000): a = [a]\npickle.dumps(a)", (STACK, THROWN)),
    Attack("deep JSON", "import json\njson.loads('[' * 100000)", (STACK, THROWN)),
    # --- the bridge ---
    Attack("output without end", "while True: print('x' * 1000)", (OUTPUT,)),
    Attack("one line of thirty megabytes", "print('x' * 30_000_000)", (OUTPUT, TIMEOUT)),
    Attack("a value past the cap", "'x' * 3_000_000", (OUTPUT,)),
    Attack("an argument past the cap", "echo(x='y' * 2_000_000)", (("limit", "bridge-bytes"),), limits={"bridge_bytes": 1 << 20}),
    Attack("answers past the cap", "while True: big(size=500000)", (("limit", "bridge-bytes"),), limits={"bridge_bytes": 2 << 20}),
    Attack("tool calls without end", "while True: echo()", (("limit", "tool-calls"),), limits={"tool_calls": 50}),
    Attack("a future that nothing settles", "import asyncio\nawait asyncio.Future()", (THROWN,), error="Deadlock"),
    Attack("a cyclic argument", "a = {}\na['a'] = a\necho(a)", (THROWN,), error="ValueError"),
    Attack("a set as argument", "echo(a={1})", (THROWN,), error="TypeError"),
    Attack("NaN as result", "float('nan')", (THROWN,), error="ValueError"),
    Attack("json replaced", "import json\njson.dumps = lambda *a, **k: '{\"evil\": 1}'\njson.loads = lambda *a: 666\necho(a=1)", (OK,), value={"a": 1}),
    Attack("a tool that isn't granted", "tool('rm')", (THROWN,), error="ToolError"),
    Attack("a host error stays with the host", "try:\n  fails()\nexcept ToolError as e:\n  s = str(e)\ns", (OK,), value="the tool failed"),
    Attack("a refusal is for the script", "try:\n  refuses()\nexcept ToolError as e:\n  s = [str(e), e.reason]\ns", (OK,), value=["not for you", "approval-declined"]),
    Attack("lone surrogates and NUL", "echo(a='\\ud800 \\0 \\udfff')", (OK,), value={"a": "\ud800 \0 \udfff"}),
    # --- reaching out ---
    Attack("reading a file", "open('/etc/passwd').read()", (THROWN,), error=NO),
    Attack("reading a file with pathlib", "import pathlib\npathlib.Path('/etc/passwd').read_text()", (THROWN,), error=NO),
    Attack("reading a file with the real posix", "import sys\ndel sys.modules['posix']\nimport posix\nposix.open('/etc/passwd', 0)", (THROWN,)),
    Attack("reading a file with the real io", "import sys\ndel sys.modules['_io']\nimport _io\n_io.FileIO('/etc/passwd')", (THROWN,)),
    Attack("reading a file with codecs", "import codecs\ncodecs.open('/etc/passwd')", (THROWN,)),
    Attack("listing a folder", "import os\nos.listdir('/')", (THROWN,), error=NO),
    Attack("the environment", "import os\ndict(os.environ)", (OK,), value={}),
    Attack("a socket", "import socket", (THROWN,), error=GONE),
    Attack("the real socket module", "import _socket\n_socket.socket()", (THROWN,)),
    Attack("urllib", "import urllib.request", (THROWN,), error=GONE),
    Attack("a subprocess", "import subprocess", (THROWN,), error=GONE),
    Attack("os.system", "import os\nos.system('id')", (THROWN,)),
    Attack("ctypes", "import ctypes", (THROWN,), error=GONE),
    Attack("a thread", "import threading\nthreading.Thread(target=print).start()", (THROWN,)),
    Attack("the tool's own way out", "import wit_world\nwit_world.call('trm\\n{}')", (OK,), value='0{"message":"no tool named \'rm\' is granted to this script","reason":"unknown-tool"}'),
    Attack("standard input", "import sys\nsys.stdin.read()", (THROWN,)),
    Attack("os._exit", "import os\nos._exit(0)", (THROWN,), error=NO),
    Attack("the real os._exit", "import sys\ndel sys.modules['posix']\nimport posix\nposix._exit(0)", (THROWN,)),
    Attack("sys.exit", "import sys\nsys.exit(3)", (THROWN,), error="SystemExit"),
    Attack("a segmentation fault", "import faulthandler\nfaulthandler._sigsegv()", (THROWN,)),
    Attack("the clock without a grant", "import time\ntime.time()", (THROWN,), error=NO),
    Attack("the date without a grant", "import datetime\ndatetime.datetime.now()", (THROWN,), error=NO),
    Attack("sixty-four megabytes of randomness", "import os\nlen(os.urandom(64 << 20))", (OK, TIMEOUT, MEMORY), value=64 << 20),
    Attack("randomness of the system", "import sys\ndel sys.modules['posix']\nimport posix\nlen(posix.urandom(64 << 20))", (THROWN, OK, TIMEOUT, MEMORY), value=64 << 20),
    Attack("fetch without a grant", "fetch('https://a.test')", (THROWN,), error="NameError"),
    Attack("fetch with a grant", "r = fetch('https://a.test/x')\n[r.status, r.text]", (OK,), value=[200, "https://a.test/x"], fetch=True),
    Attack("bytecode out of range", "def f(): pass\nf.__code__ = f.__code__.replace(co_code=b'\\x64\\xff' * 10)\nf()", (THROWN, TIMEOUT, MEMORY, STACK, ("sandbox_error", "crashed"))),
    Attack("an error that can't be printed", "class E(Exception):\n  def __str__(self): raise E()\nraise E()", (THROWN,)),
    Attack("an error that turns into a number", "import json\njson.JSONEncoder.encode = lambda *a: '5'\nraise ValueError('x')", (THROWN,)),
    Attack("an error that turns into a deep list", "import json\njson.JSONEncoder.encode = lambda *a: '[' * 5000\nraise ValueError('x')", (THROWN,)),
    Attack("an error with parts of other types", "import json\njson.JSONEncoder.encode = lambda *a: '{\"type\": [], \"line\": {}, \"trace\": 5}'\nraise ValueError('x')", (THROWN,)),
    Attack("deleting every builtin", "import builtins\nfor k in list(vars(builtins)):\n  delattr(builtins, k)\necho", (THROWN, OK)),
    # --- endings that are hard to tell of ---
    Attack("a metaclass that hides the error's name", "class M(type):\n  @property\n  def __name__(c): raise SystemExit(7)\nclass E(Exception, metaclass=M): pass\nraise E('x')", (THROWN,), error="E"),
    Attack("a message whose parts never end", "class S(str):\n  def __getitem__(self, k):\n    while True: pass\nclass E(Exception):\n  def __str__(self): return S('a' * 9)\nraise E()", (TIMEOUT, THROWN)),
    Attack("a syntax error made by hand", "e = SyntaxError('x')\ne.filename, e.lineno, e.offset, e.msg = '<script>', 'a', {}, object()\nraise e", (THROWN,), error="SyntaxError"),
    Attack("builtins replaced by nonsense", "import builtins\nbuiltins.str = None\nbuiltins.len = lambda *a: -1\n5", (OK, THROWN)),
    Attack("a chain of a hundred thousand errors", "e = None\nfor i in range(100000):\n  n = ValueError(i)\n  n.__cause__ = e\n  e = n\nraise e", (THROWN, STACK)),
    # --- what runs late, or never ---
    Attack("a generator left open", "def g():\n  try: yield 1\n  finally:\n    while True: pass\ni = g()\nnext(i)\n5", (OK,), value=5),
    Attack("an async generator left open", "import asyncio\nasync def g():\n  try: yield 1\n  finally:\n    while True: pass\nasync def m():\n  async for x in g(): break\n  return 5\nasyncio.run(m())", (OK, TIMEOUT), value=5),
    Attack("a task left pending", "import asyncio\nasync def f(): await asyncio.Event().wait()\nasync def m():\n  t = asyncio.create_task(f())\n  return 5\nawait m()", (OK,), value=5),
    Attack("a collection callback that loops", "import gc\ngc.callbacks.append(lambda p, i: exec('while True: pass'))\ngc.collect()", (TIMEOUT,)),
    Attack("atexit", "import atexit\natexit.register(lambda: exec('while True: pass'))\n5", (OK,), value=5),
    Attack("a trace function that loops", "import sys\nsys.settrace(lambda *a: exec('while True: pass'))\ndef f(): pass\nf()", (TIMEOUT,)),
    Attack("a lock taken twice", "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()", (THROWN,)),
    Attack("waiting for a queue", "import queue\nqueue.Queue().get(timeout=5)", (THROWN,)),
    Attack("a busy loop of asyncio", "import asyncio\nwhile True: await asyncio.sleep(0)", (TIMEOUT,)),
    Attack("sleeping for ever without time", "import asyncio\nwhile True: await asyncio.sleep(3600)", (TIMEOUT,)),
    Attack("questions all at once", "import asyncio\nawait asyncio.gather(*[never(i=i) for i in range(400)])", (TIMEOUT,)),
    # --- numbers and text ---
    Attack("a number of ten thousand digits", "10 ** 10000", (THROWN,), error="ValueError"),
    Attack("a number of a million digits as text", "import sys\nsys.set_int_max_str_digits(0)\nlen(str(10 ** 100000))", (OK, TIMEOUT), value=100001),
    Attack("a decimal of a hundred million digits", "import decimal\ndecimal.getcontext().prec = 10 ** 8\ndecimal.Decimal(1) / 3", (MEMORY, TIMEOUT)),
    Attack("a decimal made whole", "import decimal\nint(decimal.Decimal('1e100000000'))", (TIMEOUT, MEMORY)),
    Attack("a fraction of ten million digits", "from fractions import Fraction\nFraction('1e10000000')", (TIMEOUT, MEMORY, OK)),
    Attack("a repeat in a repeat", "import re\nre.compile('(?:a{1,1000}){1,1000}' * 50).match('a' * 10000)", (TIMEOUT, THROWN)),
    Attack("infinity as an argument", "echo(a=float('inf'))", (THROWN,), error="ValueError"),
    Attack("a lone surrogate below our library", "import wit_world\nwit_world.emit(0, '\\ud800')", (THROWN,)),
    Attack("a question to the bridge that is no JSON", "import wit_world\nwit_world.call('techo\\nNaN')", (OK,), value='0{"message":"not JSON: NaN is not JSON","reason":"input-schema"}'),
    Attack("a question to the bridge of no shape", "import wit_world\n[wit_world.call('')[:1], wit_world.call('x')[:1], wit_world.call('\\n\\n')[:1]]", (OK,), value=["0", "0", "0"]),
    Attack("an answer that nobody asked for", "import wit_world\nwit_world.wait()", (OK,), value=""),
    Attack("the guest's own settings", "import sys\nsys._getframe(1).f_globals['_settings']['output'] = 10 ** 12\n'x' * 3000000", (OUTPUT,)),
    # --- reaching out ---
    Attack("signals and maps", "import signal", (THROWN,), error=GONE),
    Attack("mmap", "import mmap", (THROWN,), error=GONE),
    Attack("a raw descriptor", "import _io\n_io.FileIO(0).read()", (THROWN,)),
    Attack("a real file", "import _io\n_io.open('/etc/passwd')", (THROWN,)),
    Attack("the real clock", "import sys\ndel sys.modules['time']\nimport time\ntime.time()", (THROWN,)),
    Attack("a pickle that runs a command", "import pickle\npickle.loads(b'cos\\nsystem\\n(S\"id\"\\ntR.')", (THROWN,)),
)  # fmt: skip

# Needs the engine compiled a second time, with counters in it: half a minute.
FUEL = Attack(
    "an endless loop under fuel", "while True: pass", (CPU,), limits={"fuel": 300_000_000, "wall_s": 8.0}
)
