"""What a hostile or clumsy JavaScript may try, and the endings that are right for it. Sources: published
engine issues, our own trials.
"""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import dataclass, field

Ending = tuple[str, str | None]
TIMEOUT: Ending = ("limit", "timeout")
MEMORY: Ending = ("limit", "memory")
STACK: Ending = ("limit", "stack")
OUTPUT: Ending = ("limit", "output")
THROWN: Ending = ("tool_error", None)
OK: Ending = ("ok", None)


@dataclass(frozen=True, slots=True)
class Attack:
    """code: the script. right: endings that are right. value: for "ok". limits: other than the small
    defaults of the test.
    """

    name: str
    code: str
    right: tuple[Ending, ...]
    value: object = None
    error: str = ""
    limits: dict[str, object] = field(default_factory=dict)
    fetch: bool = False


DEEP = "let a = []; for (let i = 0; i < 100000; i++) a = [a];"

ATTACKS = (
    # --- time ---
    Attack("an endless loop", "while (true);", (TIMEOUT,)),
    Attack("an endless loop under fuel", "while (true);", (("limit", "cpu"),), limits={"fuel": 50_000_000}),
    Attack("a regular expression that backtracks", '/^(a+)+$/.test("a".repeat(40) + "!")', (TIMEOUT,)),
    Attack("a built-in that loops in C", "Array.prototype.indexOf.call({ length: 4294967295 }, 99)", (TIMEOUT,)),
    Attack("sorting four billion holes", "const a = []; a.length = 4294967295; a.sort()", (TIMEOUT, MEMORY)),
    Attack("joining a billion holes", "new Array(1e9).join('ab')", (TIMEOUT, MEMORY, THROWN)),
    Attack("an endless microtask chain", "const f = () => Promise.resolve().then(f); f(); 1", (TIMEOUT,)),
    Attack("an endless async loop", "(async () => { for (;;) await 0; })()", (TIMEOUT,)),
    Attack("a generator without end", "[...(function* () { for (;;) yield 1; })()]", (TIMEOUT, MEMORY)),
    Attack("a huge BigInt power", "(2n ** 99999999n).toString().length", (TIMEOUT, MEMORY, THROWN)),
    Attack("a toString that never ends, in the result", "({ toJSON() { for (;;); } })", (TIMEOUT,)),
    Attack("a message getter that never ends", "throw { __proto__: Error.prototype, get message() { for (;;); } }", (TIMEOUT,)),
    Attack("a name getter that never ends", "const e = new Error('x'); Object.defineProperty(e, 'name', { get() { for (;;); } }); throw e", (TIMEOUT,)),
    Attack("a stack getter that never ends", "const e = new Error('x'); Object.defineProperty(e, 'stack', { get() { for (;;); } }); throw e", (TIMEOUT,)),
    Attack("a proxy with ten million keys", "new Proxy({}, { ownKeys: () => Array.from({ length: 1e7 }, (_, i) => 'k' + i) })", (TIMEOUT, MEMORY, OUTPUT, THROWN)),
    Attack("a thenable that never settles, looping", "({ then(r) { for (;;); } })", (OK, TIMEOUT), value={}),
    Attack("waiting for a tool that never answers", "await tools.never()", (TIMEOUT,)),
    Attack("a finalization registry", "const r = new FinalizationRegistry(() => { for (;;); }); for (let i = 0; i < 1000; i++) r.register({}, i); 1", (OK, TIMEOUT), value=1),
    Attack("valueOf that never ends, in a loop condition", "for (let i = 0; i < { valueOf() { for (;;); } }; i++);", (TIMEOUT,)),
    # --- memory ---
    Attack("arrays of a mebibyte for ever", "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))", (MEMORY,)),
    Attack("strings that double", "let s = 'x'; for (;;) s += s", (MEMORY, THROWN)),
    Attack("flattening a rope", "let s = 'x'; for (let i = 0; i < 29; i++) s += s; s.charCodeAt(5)", (MEMORY, THROWN, OK), value=120),
    Attack("objects for ever", "const a = []; for (;;) a.push({ a: 1, b: [2] })", (MEMORY, TIMEOUT)),
    Attack("one array buffer of sixteen gigabytes", "new ArrayBuffer(16 * 2 ** 30)", (THROWN, MEMORY)),
    Attack("out of memory, caught, and going on", "let n = 0; try { const a = []; for (;;) { a.push(new Uint8Array(1 << 20)); n++ } } catch { n > 10 }", (OK,), value=True),
    Attack("a string repeated past the cap", "'x'.repeat(2 ** 29)", (MEMORY, THROWN, OUTPUT)),
    Attack("closures that hold each other", "let f = () => 0; for (;;) { const g = f; f = () => g() }", (MEMORY, TIMEOUT)),
    Attack("a map that grows for ever", "const m = new Map(); for (let i = 0; ; i++) m.set(i, i)", (MEMORY, TIMEOUT)),
    Attack("symbols for ever", "const a = []; for (;;) a.push(Symbol('x'.repeat(1000)))", (MEMORY, TIMEOUT)),
    # --- stack ---
    Attack("recursion", "(function f() { f() })()", (THROWN,), error="RangeError"),
    Attack("recursion, caught", "try { (function f() { f() })() } catch (e) { e.name }", (OK,), value="RangeError"),
    Attack("recursion through a getter", "const o = { get a() { return this.a } }; o.a", (THROWN, STACK)),
    Attack("recursion through a proxy", "const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.x", (THROWN, STACK)),
    Attack("recursion through JSON.stringify", "const o = { toJSON() { return JSON.stringify(o) } }; JSON.stringify(o)", (THROWN, STACK)),
    Attack("recursion through sort", "(function f() { [2, 1].sort(f) })()", (THROWN, STACK)),
    Attack("recursion through replace", "(function f() { 'a'.replace(/a/, f) })()", (THROWN, STACK)),
    Attack("a million brackets to parse as JSON", "JSON.parse('['.repeat(1e6))", (STACK, THROWN)),
    Attack("a hundred thousand brackets to parse as code", "eval('('.repeat(1e5))", (STACK, THROWN)),
    Attack("a deep array to print as JSON", DEEP + " JSON.stringify(a)", (STACK, THROWN)),
    Attack("a deep array as the result", DEEP + " a", (STACK, THROWN)),
    Attack("a deep regular expression", "new RegExp('('.repeat(1e5) + ')'.repeat(1e5))", (STACK, THROWN)),
    Attack("a promise chain a million long", "let p = Promise.resolve(1); for (let i = 0; i < 1e6; i++) p = p.then((x) => x); await p", (OK, MEMORY, TIMEOUT), value=1),
    # --- the bridge ---
    Attack("output without end", "for (;;) console.log('x'.repeat(1000))", (OUTPUT,)),
    Attack("one line of thirty megabytes", "console.log('x'.repeat(3e7))", (OUTPUT, MEMORY)),
    Attack("a value past the cap", "'x'.repeat(3e6)", (OUTPUT,)),
    Attack("an argument past the cap", "await tools.echo({ x: 'y'.repeat(2e7) })", (("limit", "bridge-bytes"), MEMORY), limits={"bridge_bytes": 1 << 20}),
    Attack("answers past the cap", "for (;;) await tools.big({ size: 500000 })", (("limit", "bridge-bytes"),), limits={"bridge_bytes": 2 << 20}),
    Attack("tool calls without end", "for (;;) await tools.echo()", (("limit", "tool-calls"),), limits={"tool_calls": 50}),
    Attack("questions all at once", "await Promise.all(Array.from({ length: 400 }, () => tools.never()))", (("limit", "pending"),)),
    Attack("a promise that nothing settles", "await new Promise(() => {})", (THROWN,), error="Deadlock"),
    Attack("a cyclic argument", "const a = {}; a.a = a; await tools.echo(a)", (THROWN,), error="TypeError"),
    Attack("a BigInt argument", "await tools.echo({ a: 1n })", (THROWN,), error="TypeError"),
    Attack("a throwing toJSON", "await tools.echo({ toJSON() { throw new RangeError('mine') } })", (THROWN,), error="RangeError"),
    Attack("JSON replaced", "JSON.stringify = () => '{\"evil\":1}'; JSON.parse = () => 666; await tools.echo({ a: 1 })", (OK,), value={"a": 1}),
    Attack("Promise.prototype.then replaced", "Promise.prototype.then = () => { throw 1 }; const x = 5; x", (OK,), value=5),
    Attack("Array iteration replaced", "Array.prototype[Symbol.iterator] = function* () { yield 'evil' }; await tools.echo({ a: [1, 2] })", (OK,), value={"a": [1, 2]}),
    Attack("prototypes polluted", "Object.prototype.a = 1; Object.prototype.toJSON = undefined; await tools.echo({ b: 2 })", (OK,), value={"b": 2}),
    Attack("a setter on Object.prototype", "Object.defineProperty(Object.prototype, 'tools2', { set() { throw 1 } }); 3", (OK,), value=3),
    Attack("a __proto__ key in an answer", "const r = await tools.echo(JSON.parse('{\"__proto__\": {\"x\": 1}}')); [r.x === undefined, Object.keys(r)]", (OK,), value=[True, ["__proto__"]]),
    Attack("a tool that isn't granted", "await tool('rm', {})", (THROWN,), error="ToolError"),
    Attack("tools replaced", "try { 'use strict'; tools.echo = 1 } catch {} typeof tools.echo", (OK,), value="function"),
    Attack("a host error stays with the host", "try { await tools.fails() } catch (e) { e.message }", (OK,), value="the tool failed"),
    Attack("a refusal is for the script", "try { await tools.refuses() } catch (e) { [e.name, e.message, e.reason] }", (OK,), value=["ToolError", "not for you", "approval-declined"]),
    Attack("lone surrogates and NUL", "await tools.echo({ a: '\\ud800 \\0 \\udfff' })", (OK,), value={"a": "\ud800 \0 \udfff"}),
    # --- reaching out ---
    Attack("std and os by name", "[typeof std, typeof os, typeof print, typeof scriptArgs, typeof require, typeof process]", (OK,), value=["undefined"] * 6),
    Attack("importing os", "await import('qjs:os')", (THROWN,)),
    Attack("importing std", "await import('std')", (THROWN,)),
    Attack("importing a file", "await import('file:///etc/passwd')", (THROWN,)),
    Attack("std.evalScript", "std.evalScript('1'); for (;;);", (THROWN,), error="ReferenceError"),
    Attack("fetch without a grant", "typeof fetch", (OK,), value="undefined"),
    Attack("fetch with a grant", "const r = await fetch('https://a.test/x'); [r.status, await r.text()]", (OK,), value=[200, "https://a.test/x"], fetch=True),
    Attack("the clock without a grant", "Date.now()", (THROWN,), error="Error"),
    Attack("the clock through Reflect", "Reflect.construct(Date, [])", (THROWN,), error="Error"),
    Attack("the clock through a subclass", "class D extends Date {} new D()", (THROWN,), error="Error"),
    Attack("the real Date by its prototype", "new (Object.getPrototypeOf(new Date(0)).constructor)()", (THROWN,), error="Error"),
    Attack("the bridge by its name", "typeof bridge", (OK,), value="undefined"),
    Attack("the caller of a tool", "(() => { try { return String(tools.echo.caller) } catch (e) { return e.name } })()", (OK,), value=None),
    Attack("the function constructor", "Function('return typeof std')()", (OK,), value="undefined"),
    Attack("Atomics.wait", "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3000)", (THROWN, TIMEOUT)),
    Attack("throwing null", "throw null", (THROWN,)),
    Attack("throwing a proxy", "throw new Proxy({}, { get() { throw 1 }, getPrototypeOf() { throw 2 } })", (THROWN,)),
    Attack("an error that turns into a number", "Object.prototype.toJSON = () => 5; throw new Error('x')", (THROWN,)),
    Attack("an error that turns into a list three thousand deep", "let d = []; for (let i = 0; i < 3000; i++) d = [d]; Object.prototype.toJSON = function () { return Array.isArray(this) ? this : d }; throw new Error('x')", (THROWN,)),
    Attack("an error on a line of five thousand digits", "throw Object.assign(new Error('x'), { stack: 'at script.js:' + '9'.repeat(5000) })", (THROWN,)),
    Attack("a number past every double, as the result", "JSON.rawJSON('1e400')", (THROWN,), error="NotJson"),
    Attack("a number past every double, as an argument", "try { await tools.echo(JSON.rawJSON('1e400')) } catch (e) { e.message }", (OK,), value="not JSON: a number is too large"),
    Attack("a setter for the reason of a refusal", "Object.defineProperty(ToolError.prototype, 'reason', { set() { throw 1 } }); try { await tools.refuses() } catch (e) { e.reason }", (OK,), value="approval-declined"),
    Attack("descriptors polluted before a refusal", "Object.prototype.get = () => 1; try { await tools.refuses() } catch (e) { e.reason }", (OK,), value="approval-declined"),
    Attack("empty objects by the million, for a tool", "const x = Array(1000).fill({}); await tools.echo({ a: Array(1200).fill(x) })", (("limit", "bridge-bytes"),)),
    Attack("a result that can't be printed", "({ toJSON() { throw { toString() { throw 1 } } } })", (THROWN,)),
    Attack("deleting every global", "for (const k of Object.getOwnPropertyNames(globalThis)) try { delete globalThis[k] } catch {} ; 1", (OK,), value=1),
    Attack("freezing every intrinsic", "for (const k of Object.getOwnPropertyNames(globalThis)) try { Object.freeze(globalThis[k]); Object.freeze(globalThis[k].prototype) } catch {} ; await tools.echo({ a: 1 })", (OK,), value={"a": 1}),
    # --- endings that are hard to tell of ---
    Attack("memory that is gone when the end is told", "let a = null; for (let i = 0; i < 1e7; i++) a = { a }; 1", (MEMORY,)),
    Attack("an array nested until memory is gone", "let a = []; for (;;) a = [a]", (MEMORY,)),
    Attack("an error that can't become JSON", "Object.prototype.toJSON = () => { throw 1 }; throw new Error('x')", (THROWN,), error="Error"),
    Attack("an error of three megabytes", "throw new Error('x'.repeat(3e6))", (THROWN,), error="Error"),
    Attack("a species getter of promises that throws", "Object.defineProperty(Promise, Symbol.species, { get() { throw new RangeError('mine') } }); await tools.echo(1)", (THROWN,), error="RangeError"),
    Attack("instanceof of promises replaced", "Object.defineProperty(Promise, Symbol.hasInstance, { value() { throw 1 } }); 5", (OK,), value=5),
    Attack("a thenable as an argument", "await tools.echo({ then(r) { r(1) }, a: 2 })", (OK,), value={"a": 2}),
    Attack("every object a thenable", "Object.prototype.then = function (r) { r(99) }; ({ a: 1 })", (OK,), value={"a": 1}),
    Attack("an async generator never finished", "async function* g() { try { yield 1; await new Promise(() => {}) } finally { for (;;); } } const i = g(); await i.next(); 5", (OK,), value=5),
    Attack("a generator that loops when it is left", "function* g() { try { yield 1 } finally { for (;;); } } for (const x of g()) break", (TIMEOUT,)),
    Attack("recursion through a reviver", "JSON.parse('[1]', function r(k, v) { return JSON.parse('[1]', r) })", (THROWN, STACK)),
    Attack("recursion through ownKeys", "const p = new Proxy({}, { ownKeys() { return Reflect.ownKeys(p) } }); Object.keys(p)", (THROWN, STACK)),
    Attack("a toJSON that nests for ever", "const o = { toJSON() { return { o } } }; JSON.stringify(o)", (STACK, THROWN)),
    Attack("a hundred thousand proxies around each other", "let p = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); p.x", (THROWN, STACK)),
    Attack("a hundred thousand bindings", "let f = () => 1; for (let i = 0; i < 1e5; i++) f = f.bind(null); f()", (THROWN, STACK, MEMORY)),
    Attack("a class in a class in a class", "eval('class A{static x='.repeat(5000) + '1' + '}'.repeat(5000))", (STACK, THROWN)),
    Attack("a buffer that is resized to the sky", "const b = new ArrayBuffer(8, { maxByteLength: 1 << 30 }); for (let i = 8; ; i *= 2) b.resize(i)", (MEMORY, THROWN)),
    Attack("a quantifier in a quantifier", "/(?:a{0,1000}){0,1000}b/.test('a'.repeat(3000))", (TIMEOUT,)),
    Attack("a raw string of a billion parts", "String.raw({ raw: { length: 1e9 } }, 1)", (TIMEOUT, MEMORY, THROWN)),
    Attack("an array without end from an async iterator", "await Array.fromAsync((async function* () { for (;;) yield 1 })())", (TIMEOUT, MEMORY)),
    Attack("an iterator asked to drop a trillion", "Iterator.from((function* () { for (;;) yield 1 })()).drop(1e12).next()", (TIMEOUT,)),
    Attack("a map whose size never ends, printed", "const m = new Map(); Object.defineProperty(m, 'size', { get() { for (;;); } }); console.log(m)", (TIMEOUT,)),
    Attack("a map that grows while it is printed", "const m = new Map(), e = new Error('x'); let n = 0; Object.defineProperty(e, 'message', { get() { m.set('k' + n++, e); return 'x' } }); m.set(1, e); console.log(m)", (TIMEOUT, MEMORY, OUTPUT)),
    Attack("numbers past every double, dates and holes", "await tools.echo([NaN, Infinity, -0, undefined, () => 1, new Date(0), new Date(NaN), 9007199254740993, [,]])", (OK,),
           value=[None, None, 0, None, None, "1970-01-01T00:00:00.000Z", None, 9007199254740992, [None]]),
    Attack("a name with a line break in it", "try { await tool('echo\\n{\"a\":1}', 1) } catch (e) { e.reason }", (OK,), value="input-schema"),
    Attack("everything frozen", "Object.freeze(globalThis); Object.freeze(Object.prototype); Object.freeze(Promise.prototype); await tools.echo({ a: 1 })", (OK,), value={"a": 1}),
)  # fmt: skip
