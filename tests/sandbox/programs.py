# ruff: noqa: E501 - one program a line
"""Programs that have to give the same answer here as in `node` and in `python3`. Our own; a few hundred
of each.

Operators are tried on every pair of a list of values, one program for each operator and left value; the
rest are single programs that exercise one feature each. Each gives a JSON value or text.
"""

from __future__ import annotations

JS_VALUES = (
    "0",
    "-0",
    "1",
    "-1.5",
    "1e21",
    "NaN",
    "Infinity",
    "'a'",
    "'10'",
    "''",
    "null",
    "undefined",
    "true",
    "[]",
    "[1,2]",
    "({})",
    "3n",
)
JS_OPERATORS = (
    "+",
    "-",
    "*",
    "/",
    "%",
    "**",
    "<",
    ">=",
    "==",
    "===",
    "!=",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    ">>>",
    "&&",
    "||",
    "??",
)

JS_FEATURES = """
[3, 1, 2].sort().concat([4]).reverse().join()
[10, 9, 1].sort()
[5, 1, 4].toSorted((a, b) => a - b)
[1, [2, [3, [4]]]].flat(Infinity)
[1, 2, 3].flatMap((x) => [x, x * 2])
Array.from({ length: 5 }, (_, i) => i * i)
[1, 2, 3, 4].findLast((x) => x % 2)
[1, 2, 3].at(-1)
[1, 2, 3, 4, 5].copyWithin(0, 3)
[, 1, , 2].map((x) => x ?? 'hole').length
Object.entries({ b: 1, a: 2, 10: 'x', 2: 'y' })
Object.fromEntries([['a', 1], ['b', 2]])
JSON.stringify({ a: [1, { b: undefined }], c: new Date(0), d: NaN }, null, 2)
JSON.stringify('\\u2028\\ud800"\\n')
JSON.parse('{"a":[1,2,{"b":null}]}', (k, v) => (typeof v === 'number' ? v + 1 : v))
const { a, ...rest } = { a: 1, b: 2, c: 3 }; rest
const [x, , y = 9, ...z] = [1, 2, undefined, 4, 5]; [x, y, z]
((a, b = a + 1, ...c) => [a, b, c])(1, undefined, 3, 4)
let s = ''; for (const [k, v] of new Map([['a', 1], ['b', 2]])) s += k + v; s
let out = []; for (const k in { x: 1, y: 2 }) out.push(k); out
outer: for (let i = 0; i < 3; i++) { for (let j = 0; j < 3; j++) { if (j === 1) continue outer; if (i === 2) break outer } } 'done'
function* g() { const got = yield 1; yield got * 2; return 5 } const it = g(); [it.next().value, it.next(21).value, it.next().value, it.next().done]
[...(function* () { yield* [1, 2]; yield 3 })()]
class A { #p = 1; static s = 2; get p() { return this.#p } set p(v) { this.#p = v } static m() { return this.s } } const o = new A(); o.p = 7; [o.p, A.m()]
class B extends Array { sum() { return this.reduce((a, b) => a + b, 0) } } B.from([1, 2, 3]).map((x) => x * 2).sum()
class C { constructor() { this.n = new.target.name } } class D extends C {} new D().n
const p = new Proxy({}, { get: (t, k) => `got ${String(k)}`, has: () => true }); [p.foo, 'x' in p]
Reflect.ownKeys({ b: 1, [Symbol('s')]: 2, a: 3 }).map(String)
const sym = Symbol('d'); [sym.toString(), sym.description, typeof sym]
[typeof null, typeof undefined, typeof (() => 1), typeof 1n, typeof Symbol.iterator]
((a) => { try { return a() } catch (e) { return e.name } finally { a = null } })(() => null.x)
try { throw new AggregateError([new Error('a')], 'm') } catch (e) { [e.name, e.message, e.errors.length] }
new Error('m', { cause: 'c' }).cause
(() => { try { return 1 } finally { return 2 } })()
[0.1 + 0.2, 1 / 3, 1e21, 1e-7, 123456789012345680000, -1e-7]
[(25).toString(36), (255).toString(16), (0.5).toString(2), (-7).toString(2)]
[(1.005).toFixed(2), (1234.5678).toExponential(2), (0.00001).toPrecision(1), (1e21).toFixed(2)]
[parseInt('12px'), parseInt('0x1f'), parseFloat('3.14abc'), Number(''), Number(' 12 '), Number('1_0')]
[Number.MAX_SAFE_INTEGER, Number.EPSILON > 0, Number.isInteger(5.0), Math.hypot(3, 4), Math.cbrt(27), Math.sign(-3)]
[Math.round(-0.5), Math.round(2.5), Math.trunc(-4.7), Math.clz32(1), Math.fround(5.5), Math.imul(3, 4)]
[Math.max(), Math.min(), Math.max(1, NaN), Math.atan2(1, 1)].map(String)
(2n ** 100n).toString()
[(-7n / 2n).toString(), (-7n % 2n).toString(), (5n << 3n).toString(), BigInt.asUintN(8, 257n).toString()]
BigInt('0xff') + 1n === 256n
['abc'.padStart(5, '*'), 'abc'.padEnd(5), 'ab'.repeat(3), ' x '.trim(), 'abc'.at(-1)]
['a-b-c'.split('-'), 'abc'.split(''), 'a1b2'.split(/\\d/), 'a1b2'.split(/(\\d)/)]
['aXbX'.replace('X', '$&$&'), 'aXbX'.replaceAll('X', (m, i) => i), 'abc'.replace(/(b)/, '[$1]'), 'x'.replace('x', '$$')]
['İ'.toLowerCase().length, 'ß'.toUpperCase(), 'ﬁ'.normalize('NFKC'), 'é'.normalize('NFD').length]
['😀'.length, [...'😀a'].length, '😀'.codePointAt(0), String.fromCodePoint(128512), '😀'.charCodeAt(1)]
['b'.localeCompare('a') > 0, 'abc' < 'abd', 'Z' < 'a', '10' < '9', 10 < 9]
'abcabc'.matchAll(/b(?<rest>.)/g).next().value.groups.rest
[...'2024-01-02'.matchAll(/\\d+/g)].map((m) => m.index)
/(\\d{4})-(\\d\\d)/.exec('on 2024-05').slice(1)
['aBc'.match(/b/i).index, /^.$/u.test('😀'), /a.c/s.test('a\\nc'), /\\bfoo\\b/.test('a foo b')]
[/(?<=\\$)\\d+/.exec('cost $42')[0], /(?<!a)b/.test('ab'), /a(?=b)/.test('ab'), /(a)|(b)/.exec('b')]
/[\\p{L}--x]/v.test('y')
const re = /a/y; re.lastIndex = 1; [re.test('ba'), re.lastIndex]
[encodeURIComponent('a b&é/'), decodeURIComponent('%C3%A9'), encodeURI('http://x/ü?a=1'), escape('ü')]
new Date(Date.UTC(2024, 1, 29, 12, 30, 15, 123)).toISOString()
[new Date('2024-02-30T00:00:00Z').getUTCDate(), isNaN(new Date('garbage')), new Date(8.64e15 + 1).getTime() !== 0]
[new Date(0).getUTCDay(), new Date('2024-03-10T10:00:00+02:00').toISOString(), new Date(2024, 0, 1) instanceof Date]
Date.UTC(1999, 11, 31, 23, 59, 59)
new Set([1, 2, 3]).union(new Set([3, 4])).size
[...new Set([3, 1, 3, 2])]
[...new Map([[NaN, 1], [0, 2], [-0, 3]])].map(([k, v]) => String(k) + v)
const w = new WeakMap(); const k = {}; w.set(k, 1); [w.get(k), w.has({})]
Object.groupBy([1, 2, 3, 4], (x) => (x % 2 ? 'odd' : 'even'))
const u8 = new Uint8Array([1, 2, 300, -1]); [...u8]
[...new Uint8ClampedArray([300, -5, 1.5])]
[...new Float32Array([0.1])][0].toFixed(10)
new DataView(new Uint8Array([1, 2, 3, 4]).buffer).getUint32(0, true)
[...new Int16Array(new Uint8Array([255, 255, 1, 0]).buffer)]
new Uint8Array([5, 1, 4]).toSorted().join()
const t = (strings, ...v) => strings.raw.join('|') + v.join(); t`a${1}\\n${2}b`
`${[1, 2]} ${{}} ${null} ${undefined}`
((x) => { switch (x) { case 1: return 'one'; case 2: default: return 'other' } })(2)
[1, 2, 3].includes(NaN) || [NaN].includes(NaN)
[[] + [], [] + {}, +[], +{}, +'', +[5], -null, ~~'7.9']
[null ?? 1, 0 ?? 1, 0 || 1, '' && 2, null?.x, undefined?.[0]]
let n = null; n ??= 5; n ||= 6; n &&= 7; n
const f = function fact(n) { return n < 2 ? 1 : n * fact(n - 1) }; f(10)
(() => { var v = 1; { var v = 2 } return v })()
(() => { let v = 1; { let v = 2 } return v })()
typeof hoisted + typeof later; function hoisted() {} var later
(() => { try { tdz; let tdz = 1 } catch (e) { return e.name } })()
((...a) => a.length)(...[1, 2], ...'abc')
(function () { return arguments.length })(1, 2, 3)
(function () { 'use strict'; return this === undefined })()
[1, 2, 3].reduceRight((a, b) => a + '-' + b)
Array.isArray(Array.prototype) && Array(3).fill().length
[3, 2, 1].with(1, 9)
[1, 2, 3, 4, 5].splice(1, 2)
Object.is(-0, 0) || Object.is(NaN, NaN)
Object.getOwnPropertyDescriptor({ get a() { return 1 } }, 'a').set === undefined
const fz = Object.freeze({ a: 1 }); (() => { 'use strict'; try { fz.a = 2 } catch (e) { return e.name } })()
const o2 = { toString: () => 'S', valueOf: () => 42 }; [o2 + 1, `${o2}`, o2 * 2]
({ [Symbol.toPrimitive]: (h) => h }) + ''
const order = []; const e1 = { valueOf() { order.push(1); return 1 } }, e2 = { valueOf() { order.push(2); return 2 } }; e1 + e2; order
[...'abc'].entries().toArray()
[1, 2, 3].values().map((x) => x * 2).filter((x) => x > 2).toArray()
[1, 2, 3, 4].values().drop(1).take(2).toArray()
const acc = []; await Promise.allSettled([1, Promise.reject(2)]).then((r) => acc.push(...r.map((x) => x.status))); acc
await Promise.any([Promise.reject(1), 2])
await Promise.race([new Promise(() => {}), 3])
await (async () => { const r = []; for await (const x of [1, Promise.resolve(2)]) r.push(x); return r })()
const log = []; Promise.resolve().then(() => log.push('micro')); log.push('sync'); await 0; log
const seq = []; const af = async (n) => { seq.push(n); await 0; seq.push(n + 10) }; await Promise.all([af(1), af(2)]); seq
await (async function* () { yield 1; yield 2 })().next().then((r) => r.value)
try { await (async () => { throw new RangeError('x') })() } catch (e) { e.name + e.message }
const { promise, resolve } = Promise.withResolvers(); resolve(4); await promise
eval('1 + 2') + new Function('a', 'return a * 2')(4)
(0, eval)('typeof globalThis')
[isFinite('12'), isNaN('abc'), Number.isNaN('abc'), Number.parseFloat('1.5e3')]
String(Symbol('x')) + String([1, [2, 3]]) + String({}) + String(() => 1)
[1, 10, 2].sort((a, b) => b - a).indexOf(10)
structuredClone({ a: [1, { b: 2 }] })
Object.assign({}, null, { a: 1 }, 'xy')
[..."a\\u0301"].length + 'a\\u0301'.normalize().length
parseInt('9'.repeat(20)) === 99999999999999999999
[0b101, 0o17, 0xff, 1_000_000, .5, 5.]
((a, b) => a.every((x, i) => x === b[i]))([1, 2], [1, 2])
let i = 0; do { i++ } while (i < 5); i
let c = 0; for (let j = 0, k = 10; j < k; j++, k--) c++; c
const fs = []; for (let q = 0; q < 3; q++) fs.push(() => q); fs.map((h) => h())
[['b', 1], ['a', 1], ['c', 0]].sort((x, y) => x[1] - y[1]).map((x) => x[0])
const memo = {}; const fib = (n) => n < 2 ? n : (memo[n] ??= fib(n - 1) + fib(n - 2)); fib(60)
const primes = []; for (let q = 2; primes.length < 20; q++) if (primes.every((p) => q % p)) primes.push(q); primes
const count = {}; for (const ch of 'mississippi') count[ch] = (count[ch] ?? 0) + 1; count
const q = [[1, 2], [3, 4]]; q[0].map((_, i) => q.map((r) => r[i]))
'The quick brown fox'.split(' ').map((w) => w[0].toUpperCase() + w.slice(1).toLowerCase()).join('')
""".strip().splitlines()

PY_VALUES = (
    "0",
    "1",
    "-3",
    "2.5",
    "-0.0",
    "1e300",
    "10**20",
    "True",
    "'a'",
    "'10'",
    "''",
    "None",
    "[]",
    "[1, 2]",
    "(1,)",
    "{1}",
    "b'x'",
)
PY_OPERATORS = ("+", "-", "*", "/", "//", "%", "<", ">=", "==", "!=", "&", "|", "^", "and", "or", "is", "in")

PY_FEATURES = """
sorted({'b': 1, 'a': 2}.items())
[x * y for x in range(4) for y in range(x) if (x + y) % 2]
{k: v for k, v in zip('abc', range(3))}
{*'hello'} == set('hello')
list(map(lambda x, y: x + y, [1, 2], [3, 4]))
[*range(3), *'ab']
(lambda *a, b=2, **k: (a, b, k))(1, 2, b=3, c=4)
[f'{1/3:.3f}', f'{255:#x}', f'{1234567:,}', f'{"x":>5}', f'{-5:+d}', f'{0.000012:g}', f'{3!r:^9}']
'%5.2f|%-5s|%05d|%x' % (3.14159, 'ab', 42, 255)
'{:>10}{:<5}{:^7}'.format('a', 'b', 'c')
['a,b,,c'.split(','), 'a b'.partition(' '), ' x '.strip(), 'abc'[::-1], 'aXbX'.replace('X', 'y', 1)]
['ß'.upper(), 'ǅ'.lower(), 'ﬀ'.casefold(), 'éa'.encode(), 'a\\u0301'.isidentifier(), '²'.isdigit()]
[7 // -2, -7 // 2, 7 % -3, -7 % 3, divmod(-7, 3), 2 ** -1, pow(3, 100, 7)]
[round(2.5), round(3.5), round(-2.5), round(1.005, 2), round(12345, -2), 0.1 + 0.2]
[int('ff', 16), int(' 12 '), int('1_000'), float('1e3'), float('inf') > 1, bin(10), oct(8), hex(-255)]
(10 ** 50) // 7 % 1000003
[1 == 1.0, hash(1) == hash(1.0), True + True, [1] is [1], () == (), 'a' < 'b', [1, 2] < [1, 3]]
[i for i in range(10, 0, -3)]
[a for a, *b in [(1, 2, 3), (4,)]]
(lambda: (yield))().send(None)
x = [1, 2, 3]; x[1:1] = [9, 9]; x[::2]
x = list(range(10)); del x[2:8:2]; x
a, (b, *c), d = 1, (2, 3, 4), 5; [a, b, c, d]
d = {}; d.setdefault('k', []).append(1); d | {'z': 2}
from collections import Counter; Counter('mississippi').most_common(2)
from collections import defaultdict, OrderedDict, deque; [dict(defaultdict(int, a=1)), list(deque([1, 2, 3], 2))]
from collections import namedtuple; P = namedtuple('P', 'x y'); P(1, y=2)._replace(x=5)
import itertools; [list(itertools.islice(itertools.count(5, 2), 3)), list(itertools.permutations('abc', 2))[:3], list(itertools.accumulate([1, 2, 3]))]
import itertools; [(k, len(list(g))) for k, g in itertools.groupby('aabbbc')]
import functools; functools.reduce(lambda a, b: a * b, range(1, 11))
import functools; f = functools.lru_cache(lambda n: n if n < 2 else f(n - 1) + f(n - 2)); f(80)
import math; [math.gcd(12, 18), math.factorial(20), math.isqrt(99), math.comb(10, 3), math.floor(-1.5), round(math.sin(1), 12)]
import statistics; [statistics.mean([1, 2, 4]), statistics.median([3, 1, 2]), round(statistics.stdev([1, 2, 4]), 10)]
from decimal import Decimal, getcontext; [str(Decimal('1.1') + Decimal('2.2')), str(Decimal(1) / Decimal(7))]
from fractions import Fraction; str(Fraction(3, 4) + Fraction('0.125'))
import re; [re.findall(r'(\\w)(\\d)', 'a1 b2'), re.sub(r'(?P<x>\\d)', r'<\\g<x>>', 'a1b2'), re.split(r'[,;]', 'a,b;c')]
import re; m = re.match(r'(?P<y>\\d{4})-(?P<m>\\d\\d)', '2024-05'); [m.groupdict(), m.span('m')]
import re; re.sub(r'\\b(\\w)', lambda m: m[1].upper(), 'the quick fox')
import json; json.dumps({'b': [1, 2.5, None, True], 'a': 'é'}, sort_keys=True, ensure_ascii=False)
import json; json.loads('{"a": [1, 2.0, null, "x\\\\u00e9"]}')
import datetime as dt; [str(dt.date(2024, 2, 29) + dt.timedelta(days=365)), dt.date(2024, 1, 1).isocalendar().week, str(dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc))]
import datetime as dt; dt.datetime.strptime('2024-03-05 06:07', '%Y-%m-%d %H:%M').strftime('%d/%m/%y %I%p')
import datetime as dt; (dt.datetime(2024, 3, 1) - dt.datetime(2024, 2, 1)).total_seconds()
import calendar; [calendar.isleap(2000), calendar.monthrange(2024, 2)[1]]
import hashlib, hmac; [hashlib.sha256(b'x').hexdigest()[:16], hashlib.md5(b'x').hexdigest()[:8], hmac.new(b'k', b'm', 'sha1').hexdigest()[:8]]
import base64, binascii, zlib; [base64.b64encode(b'hi\\xff').decode(), zlib.decompress(zlib.compress(b'a' * 100)) == b'a' * 100, binascii.crc32(b'x')]
import struct; [struct.pack('<IhB', 1, -2, 3).hex(), struct.unpack('>H', b'\\x01\\x02')]
import string, textwrap; [string.capwords('a bc'), textwrap.wrap('aaa bbb ccc', 7), textwrap.dedent('  a\\n   b')]
import csv, io; list(csv.reader(io.StringIO('a,"b,c"\\n1,2')))
import io; s = io.StringIO(); print(1, 'a', sep='-', end='!', file=s); s.getvalue()
import heapq, bisect; [heapq.nsmallest(2, [3, 1, 2]), bisect.bisect([1, 3, 5], 3)]
import operator; sorted([{'a': 2}, {'a': 1}], key=operator.itemgetter('a'))
import copy; x = [[1]]; y = copy.deepcopy(x); y[0].append(2); [x, y]
import enum; E = enum.Enum('E', 'A B'); [E.A.name, E['B'].value, len(E)]
import dataclasses; D = dataclasses.make_dataclass('D', [('x', int), ('y', int, dataclasses.field(default=2))]); [repr(D(1)), D(1) == D(1)]
import types; ns = types.SimpleNamespace(a=1); ns.b = 2; sorted(vars(ns))
import urllib.parse as u; [u.quote('a b&é'), u.urlparse('http://h:80/p?q=1#f').netloc, u.parse_qs('a=1&a=2')]
import html; html.escape('<a href="x">') + html.unescape('&eacute;&#39;')
import ipaddress; [str(ipaddress.ip_address('::1')), ipaddress.ip_network('10.0.0.0/30').num_addresses]
import uuid; str(uuid.uuid5(uuid.NAMESPACE_DNS, 'a.test'))
import random; r = random.Random(42); [r.randint(1, 100), round(r.random(), 12), r.sample(range(10), 3), r.choice('abc')]
import xml.etree.ElementTree as E; [e.text for e in E.fromstring('<a><b>1</b><b>2</b></a>')]
import configparser; c = configparser.ConfigParser(); c.read_string('[s]\\nk = v'); c['s']['k']
import tomllib; tomllib.loads('a = [1, 2]\\n[b]\\nc = "x"')
import graphlib; list(graphlib.TopologicalSorter({'b': {'a'}, 'c': {'b'}}).static_order())
import difflib; list(difflib.unified_diff(['a'], ['b'], lineterm=''))
import pprint; pprint.pformat({'b': list(range(5)), 'a': 'x'})
import ast; ast.literal_eval("{'a': [1, (2, 3)]}")
import unicodedata; [unicodedata.name('é'), unicodedata.normalize('NFD', 'é') == 'e\\u0301', unicodedata.category('A')]
import shlex, fnmatch; [shlex.split("a 'b c'"), fnmatch.fnmatch('x.py', '*.py')]
import pathlib; [str(pathlib.PurePosixPath('/a') / 'b' / '../c'), pathlib.PurePath('x.tar.gz').suffixes]
import array; list(array.array('h', [1, -2]))
import secrets, hashlib; len(secrets.token_hex(8))
import inspect; str(inspect.signature(lambda a, *b, c=1, **d: 0))
import contextlib; s = contextlib.suppress(ValueError); [type(s).__name__, contextlib.nullcontext(3).__enter__()]
import typing; [typing.get_args(dict[str, int]), typing.Optional[int] == typing.Union[int, None]]
import asyncio; asyncio.run(asyncio.sleep(0, 'x'))
import asyncio; f = lambda i: asyncio.sleep(0.01 * (3 - i), i); g = lambda: asyncio.gather(f(1), f(2)); asyncio.run(asyncio.wait_for(asyncio.sleep(0, 7), 1))
type('T', (), {'m': lambda self: 5, '__repr__': lambda self: 'T!'})().m()
type('T', (), {'__getattr__': lambda self, n: n * 2})().ab
type('T', (list,), {'total': property(lambda self: sum(self))})([1, 2]).total
[type(e).__name__ for e in [ZeroDivisionError(), KeyError('k'), OSError(9999, 'x'), UnicodeDecodeError('utf8', b'', 0, 1, 'r')]]
str(KeyError('k')), repr(ValueError('a', 1)), str(OSError(2, 'No'))
(lambda n: [n := n + 1, n])(1)
any(x > 2 for x in [1, 2, 3]) and all([]) and not any([])
max([1, 3, 2], key=lambda x: -x), min('b', 'a'), sum([[1], [2]], [])
list(zip(*[[1, 2], [3, 4]])), list(enumerate('ab', 1)), list(reversed([1, 2])), list(filter(None, [0, 1, '']))
iter([1]).__next__(), next(iter([]), 'end'), list(iter(lambda it=iter('abc'): next(it), 'c'))
[*map(ord, 'aé😀')], chr(128512), len('😀'), ascii('é'), repr("it's"), repr('a"b\\'c')
b'abc'[1], b'a' + bytes([98]), bytearray(b'x').hex(), memoryview(b'abc')[1:].tobytes(), b'%d' % 5
int.from_bytes(b'\\x01\\x00', 'big'), (258).to_bytes(2, 'little'), (5).bit_length(), (-5).bit_count(), 0.5.as_integer_ratio(), (0.1).hex()
isinstance(True, int), issubclass(bool, int), callable(len), type(3) is int, id(None) == id(None)
[1, 2, 3].index(2), (1, 2, 1).count(1), 'abc'.find('z'), 'a' in 'abc', 'abc'.startswith(('x', 'a'))
slice(1, 10, 2).indices(5), range(10)[2:5], range(0, 10, 3)[-1], len(range(0, 10, 3)), 9 in range(0, 10, 3)
frozenset([1, 2]) | {3} == {1, 2, 3}, {1, 2} ^ {2, 3}, {1} < {1, 2}, {1, 2}.isdisjoint({3})
complex(1, -2) * 1j, abs(3 + 4j), (1 + 2j).conjugate(), round(1.5), 1_000, 0b11, 0o7, 0xF
""".strip().splitlines()

PY_BLOCKS = (
    "def f(n):\n  match n:\n    case 0: return 'zero'\n    case int(x) if x > 5: return 'big'\n    case [a, *b]: return (a, b)\n    case {'k': v}: return v\n    case _: return None\n[f(0), f(9), f([1, 2, 3]), f({'k': 4}), f('x')]",
    "def g():\n  try:\n    yield 1\n    yield 2\n  finally:\n    out.append('closed')\nout = []\nit = g(); next(it); it.close()\nout",
    "class A:\n  def __init_subclass__(cls, **k): cls.k = k\nclass B(A, x=1): pass\nB.k",
    "class M(type):\n  def __new__(m, n, b, d): return super().__new__(m, n, b, {**d, 'tag': n.lower()})\nclass K(metaclass=M): pass\nK.tag",
    "class D:\n  def __set_name__(self, o, n): self.n = n\n  def __get__(self, i, o): return self.n\nclass C:\n  attr = D()\nC().attr",
    "class X:\n  __slots__ = ('a',)\ntry:\n  X().b = 1\nexcept AttributeError as e:\n  r = type(e).__name__\nr",
    "class C:\n  def __enter__(self): return 'in'\n  def __exit__(self, *a): return True\nwith C() as v:\n  raise ValueError\nv",
    "try:\n  try:\n    1 / 0\n  except ZeroDivisionError as e:\n    raise KeyError('k') from e\nexcept KeyError as e:\n  r = type(e.__cause__).__name__\nr",
    "try:\n  raise ExceptionGroup('g', [ValueError(1), TypeError(2)])\nexcept* ValueError as g:\n  r = len(g.exceptions)\nexcept* TypeError as g:\n  pass\nr",
    "def outer():\n  x = 1\n  def inner():\n    nonlocal x\n    x += 1\n    return x\n  return inner\nf = outer()\nf()\nf()",
    "def deco(n):\n  def w(f):\n    return lambda *a: f(*a) * n\n  return w\n@deco(3)\ndef f(x): return x + 1\nf(1)",
    "import asyncio\nasync def f(n):\n  await asyncio.sleep(0)\n  return n * 2\nasync def m():\n  return await asyncio.gather(*(f(i) for i in range(4)))\nasyncio.run(m())",
    "import asyncio\nasync def gen():\n  for i in range(3): yield i\nasync def m(): return [i async for i in gen()]\nasyncio.run(m())",
    "import asyncio\nasync def m():\n  q = asyncio.Queue()\n  async def p():\n    for i in range(3): await q.put(i)\n    await q.put(None)\n  t = asyncio.create_task(p())\n  out = []\n  while (x := await q.get()) is not None: out.append(x)\n  await t\n  return out\nasyncio.run(m())",
    "for i in range(5):\n  if i == 3: break\nelse:\n  i = 'none'\ni",
    "x = 5\nwhile x:\n  x -= 1\n  if x == 2: continue\nelse:\n  x = 'end'\nx",
    "a = b = []\na += [1]\n[a, b, a is b]",
    "def f(a, /, b, *, c): return [a, b, c]\ntry:\n  f(a=1, b=2, c=3)\nexcept TypeError:\n  r = 'type'\n[r, f(1, 2, c=3)]",
    "def f(x, acc=[]):\n  acc.append(x)\n  return acc\nf(1)\nf(2)",
    "class V:\n  def __init__(self, x): self.x = x\n  def __add__(self, o): return V(self.x + o.x)\n  def __eq__(self, o): return self.x == o.x\n  def __hash__(self): return hash(self.x)\n  def __lt__(self, o): return self.x < o.x\n[(V(1) + V(2)).x, V(1) == V(1), len({V(1), V(1)}), max(V(1), V(3)).x]",
    "import functools\n@functools.singledispatch\ndef f(x): return 'any'\n@f.register\ndef _(x: int): return 'int'\n[f(1), f('a')]",
    "import dataclasses\n@dataclasses.dataclass(order=True, frozen=True)\nclass P:\n  x: int\n  y: int = 0\n[P(1) < P(2), repr(P(1, 2)), dataclasses.replace(P(1), y=5).y]",
    "import abc\nclass B(abc.ABC):\n  @abc.abstractmethod\n  def m(self): ...\ntry:\n  B()\nexcept TypeError:\n  r = 'abstract'\nr",
    "from typing import NamedTuple, TypedDict\nclass N(NamedTuple):\n  a: int\n  b: str = 'x'\n[N(1), N(1)._asdict()]",
    "s = 'abc'\nd = {}\nfor i, c in enumerate(s):\n  d[c] = i\n{v: k for k, v in d.items()}",
    "primes = []\nn = 2\nwhile len(primes) < 15:\n  if all(n % p for p in primes): primes.append(n)\n  n += 1\nprimes",
    "def perms(s): return [s] if len(s) < 2 else [c + p for i, c in enumerate(s) for p in perms(s[:i] + s[i+1:])]\nperms('abc')",
    "def qs(a): return a if len(a) < 2 else qs([x for x in a[1:] if x < a[0]]) + [a[0]] + qs([x for x in a[1:] if x >= a[0]])\nqs([3, 1, 4, 1, 5, 9, 2, 6])",
)


def javascript() -> list[str]:
    """Every JavaScript program."""
    pairs = [
        f"[{', '.join(f'() => {a} {op} {b}' for b in JS_VALUES)}].map((f) => {{ try {{ const v = f(); return typeof v + ' ' + (Object.is(v, -0) ? '-0' : String(v)) }} catch (e) {{ return e.name }} }})"
        for op in JS_OPERATORS
        for a in JS_VALUES
        if not (op == "**" and a.startswith("-"))
    ]
    return pairs + JS_FEATURES


def python() -> list[str]:
    """Every Python program."""
    pairs = [
        "r = []\nfor f in ["
        + ", ".join(f"lambda: {a} {op} {b}" for b in PY_VALUES)
        + "]:\n  try: r.append(repr(f()))\n  except Exception as e: r.append(type(e).__name__)\nr"
        for op in PY_OPERATORS
        for a in PY_VALUES
    ]
    return (
        pairs
        + [
            line.replace("; ", "\n") if line.startswith(("import", "from", "x =", "d =", "a, (")) else line
            for line in PY_FEATURES
        ]
        + list(PY_BLOCKS)
    )
