// Runs once, when the image is baked; every script starts from the memory it leaves behind. Evaluates to the one function that
// the host calls: (op, value). What a script may replace later (JSON, prototypes) is captured here first.
// Guarantees: the bridge function is reachable from here only. Nothing in this file is a security boundary: a script that broke
// it would be left with the same bridge, whose every use the host counts and checks.
((bridge) => {
  "use strict";
  const G = globalThis;
  const { parse, stringify } = JSON;
  const { apply, construct, ownKeys, getOwnPropertyDescriptor: describeOwn } = Reflect;
  const { defineProperty, freeze, create, getPrototypeOf, keys } = Object;
  const PromiseCtor = Promise, then = Promise.prototype.then, MapCtor = Map, ErrorCtor = Error, DateCtor = Date;
  const mapGet = Map.prototype.get, mapSet = Map.prototype.set, mapDelete = Map.prototype.delete;
  const mapEach = Map.prototype.forEach, setEach = Set.prototype.forEach, SetCtor = Set;
  const join = Array.prototype.join, push = Array.prototype.push, isArray = Array.isArray;
  const slice = String.prototype.slice, indexOf = String.prototype.indexOf, replaceAll = String.prototype.replaceAll;
  const Str = String, Num = Number, imul = Math.imul, fromCode = String.fromCharCode;
  const toISO = Date.prototype.toISOString, regToString = RegExp.prototype.toString, RegExpCtor = RegExp;
  const hide = (object, name, value) => defineProperty(object, name, { __proto__: null, value, writable: true, enumerable: false, configurable: true });
  const RESULT = 0, FAILURE = 1, STDOUT = 2, STDERR = 3, CALL = 4, FETCH = 5;
  const send = (kind, id, text) => bridge(kind, id, text, 0);

  // --- what the host calls us for ------------------------------------------------------------------------------------------
  const pending = new MapCtor();
  let nextId = 1;
  // The host writes here before a script starts: four words of seed, one of flags. Cheaper than a call, and most scripts need no other.
  const state = new Int32Array(5), CLOCK = 1;

  const text = (value) => { try { return value === undefined ? undefined : Str(value); } catch { return undefined; } };
  const fail = (error) => {
    let name, message, stack;
    try { name = error instanceof ErrorCtor ? text(error.name) : undefined; } catch {}
    try { message = error instanceof ErrorCtor ? text(error.message) : typeof error === "object" && error ? stringify(error) : text(error); } catch {}
    try { stack = error instanceof ErrorCtor ? text(error.stack) : undefined; } catch {}
    message = message === undefined ? "(a value that cannot be printed)" : cut(message);
    let told;
    try { told = stringify({ name: cut(name), message, stack: cut(stack) }); } catch {}
    send(FAILURE, 0, told ?? UNTOLD);
  };
  // What the host keeps of an error at most; cut here, since half a JSON text is none.
  const MOST = 8192, UNTOLD = '{"message":"(an error that cannot be shown)"}';
  const cut = (t) => t !== undefined && t.length > MOST ? apply(slice, t, [0, MOST]) : t;
  const follow = (promise, settled) => { try { apply(then, promise, [settled, fail]); } catch (error) { fail(error); } };
  const done = (value) => {
    let waits = false;
    try { waits = value instanceof PromiseCtor; } catch {}
    if (waits) { follow(value, done); return; }
    let json;
    try { json = stringify(value); } catch (error) { fail(error); return; }
    send(RESULT, 0, json ?? "null");
  };
  const ops = [
    (config) => begin(parse(config)),
    (answer) => settle(answer),
    done,
    fail,
    (promise) => follow(promise, (wrapped) => done(wrapped.value)),
    () => state.buffer,
  ];

  const begin = (config) => {
    if (config.i !== undefined) G.input = config.i;
    if (config.t) grant(config.t);
    if (config.f) hide(G, "fetch", fetch);
  };

  // --- tools ---------------------------------------------------------------------------------------------------------------
  const ask = (kind, name, args) => {
    const json = stringify(args === undefined ? {} : args);
    const id = nextId++;
    return new PromiseCtor((resolve, reject) => {
      apply(mapSet, pending, [id, [resolve, reject]]);
      send(kind, id, name + "\n" + (json ?? "null"));
    });
  };
  class ToolError extends ErrorCtor {
    constructor(message, reason) { super(message); defineProperty(this, "reason", { __proto__: null, value: reason, writable: true, enumerable: true, configurable: true }); }
    get name() { return "ToolError"; }
  }
  hide(G, "ToolError", ToolError);
  // An answer is "<id> <1|0> <json>": the id first, so that a large value is parsed once and copied never.
  const settle = (answer) => {
    const a = apply(indexOf, answer, [" "]), id = +apply(slice, answer, [0, a]);
    const waiter = apply(mapGet, pending, [id]);
    apply(mapDelete, pending, [id]);
    const value = parse(apply(slice, answer, [a + 3]));
    if (answer[a + 1] === "1") waiter[0](value);
    else waiter[1](new ToolError(value.message, value.reason));
  };
  const tool = (name, args) => ask(CALL, Str(name), args);
  const grant = (names) => {
    const tools = create(null);
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      const call = (args) => ask(CALL, name, args);
      hide(call, "name", name);
      tools[name] = call;
      const plain = apply(replaceAll, apply(replaceAll, name, ["-", "_"]), [".", "_"]);
      if (!(plain in G)) hide(G, plain, call);
      const dot = apply(indexOf, name, ["."]);
      if (dot > 0) {
        const space = apply(slice, name, [0, dot]);
        tools[space] ??= create(null); // or the tool of that name
        defineProperty(tools[space], apply(slice, name, [dot + 1]), { __proto__: null, value: call, enumerable: true, configurable: true });
      }
    }
    hide(G, "tools", freeze(tools));
    hide(G, "tool", tool);
  };

  // --- fetch: only when egress rules were given; the broker performs it ------------------------------------------------------
  const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const codes = new Uint8Array(128).fill(255);
  for (let i = 0; i < 64; i++) codes[ALPHABET.charCodeAt(i)] = i;
  const charCode = String.prototype.charCodeAt;
  const unbase64 = (data) => {
    const out = new Uint8Array(data.length * 3 >> 2);
    let bits = 0, held = 0, n = 0;
    for (let i = 0; i < data.length; i++) {
      const c = codes[apply(charCode, data, [i])];
      if (c === 255) break;
      bits = bits << 6 | c; held += 6;
      if (held >= 8) { held -= 8; out[n++] = bits >> held & 255; }
    }
    return out.slice(0, n);
  };
  const fetch = async (url, options) => {
    const o = options ?? {};
    const body = o.body === undefined || o.body === null ? undefined : typeof o.body === "string" ? o.body : stringify(o.body);
    const reply = await ask(FETCH, "fetch", { url: Str(url), method: o.method ?? "GET", headers: o.headers ?? {}, body });
    const low = create(null);
    for (const [k, v] of reply.headers) low[k.toLowerCase()] = v;
    return {
      status: reply.status, ok: reply.status >= 200 && reply.status < 300, url: reply.url,
      headers: { get: (n) => low[Str(n).toLowerCase()] ?? null, has: (n) => Str(n).toLowerCase() in low, entries: () => reply.headers },
      text: async () => reply.text ?? fromBytes(unbase64(reply.base64)),
      json: async () => parse(reply.text ?? fromBytes(unbase64(reply.base64))),
      bytes: async () => reply.text === undefined ? unbase64(reply.base64) : toBytes(reply.text),
    };
  };
  const fromBytes = (bytes) => { let s = ""; for (let i = 0; i < bytes.length; i++) s += fromCode(bytes[i]); return s; };
  const toBytes = (s) => {
    const out = [];
    for (const ch of s) {
      const c = ch.codePointAt(0);
      if (c < 128) out.push(c);
      else if (c < 2048) out.push(192 | c >> 6, 128 | c & 63);
      else if (c < 65536) out.push(224 | c >> 12, 128 | c >> 6 & 63, 128 | c & 63);
      else out.push(240 | c >> 18, 128 | c >> 12 & 63, 128 | c >> 6 & 63, 128 | c & 63);
    }
    return new Uint8Array(out);
  };

  // --- randomness: seeded for each instance (sfc32), since the engine's own state would be frozen in the image ----------------
  const draw = () => {
    const t = (state[0] + state[1] | 0) + state[3] | 0;
    state[3] = state[3] + 1 | 0;
    state[0] = state[1] ^ (state[1] >>> 9);
    state[1] = state[2] + (state[2] << 3) | 0;
    state[2] = (state[2] << 21 | state[2] >>> 11) + t | 0;
    return t >>> 0;
  };
  hide(Math, "random", function random() { return ((draw() >>> 5) * 67108864 + (draw() >>> 6)) / 9007199254740992; });

  // --- the clock: only when granted -------------------------------------------------------------------------------------------
  const needClock = () => { if (!(state[4] & CLOCK)) throw new ErrorCtor("the clock is not granted to this script"); };
  const FDate = function Date(...a) {
    if (!new.target) { needClock(); return DateCtor(); }
    if (a.length === 0) needClock();
    return construct(DateCtor, a, new.target === FDate ? DateCtor : new.target);
  };
  defineProperty(FDate, "prototype", { value: DateCtor.prototype, writable: false });
  defineProperty(FDate, "length", { value: 7 });
  hide(FDate, "UTC", DateCtor.UTC); hide(FDate, "parse", DateCtor.parse);
  const realNow = DateCtor.now;
  hide(FDate, "now", function now() { needClock(); return realNow(); });
  hide(DateCtor.prototype, "constructor", FDate);
  hide(G, "Date", FDate);
  delete G.performance;
  delete G.gc; delete G.navigator; delete G.print; delete G.scriptArgs;

  // --- console ----------------------------------------------------------------------------------------------------------------
  const quote = (s) => apply(indexOf, s, ["'"]) < 0 ? "'" + apply(replaceAll, apply(replaceAll, s, ["\\", "\\\\"]), ["\n", "\\n"]) + "'" : stringify(s);
  const wrap = (open, parts, close) => {
    if (parts.length === 0) return open + close;
    const flat = apply(join, parts, [", "]);
    if (flat.length <= 72 && apply(indexOf, flat, ["\n"]) < 0) return open + " " + flat + " " + close;
    return open + "\n  " + apply(replaceAll, apply(join, parts, [",\n"]), ["\n", "\n  "]) + "\n" + close;
  };
  const inspect = (value, depth, seen) => {
    switch (typeof value) {
      case "string": return quote(value);
      case "bigint": return Str(value) + "n";
      case "number": return value === 0 && 1 / value < 0 ? "-0" : Str(value);
      case "function": return "[Function: " + (value.name || "(anonymous)") + "]";
      case "object": break;
      default: return Str(value);
    }
    if (value === null) return "null";
    if (seen.has(value)) return "[Circular]";
    if (value instanceof ErrorCtor) return Str(value.stack ? Str(value.name) + ": " + Str(value.message) : value);
    if (value instanceof DateCtor) return apply(toISO, value, []);
    if (value instanceof RegExpCtor) return apply(regToString, value, []);
    if (value instanceof PromiseCtor) return "Promise { ... }";
    if (depth > 2) return isArray(value) ? "[Array]" : "[Object]";
    seen.add(value);
    const parts = [];
    const add = (s) => apply(push, parts, [s]);
    let out;
    if (isArray(value) || ArrayBuffer.isView(value)) {
      const n = value.length ?? 0, shown = n > 100 ? 100 : n;
      for (let i = 0; i < shown; i++) add(i in value ? inspect(value[i], depth + 1, seen) : "<empty>");
      if (n > shown) add("... " + (n - shown) + " more items");
      out = wrap((isArray(value) ? "" : value.constructor?.name + "(" + n + ") ") + "[", parts, "]");
    } else if (value instanceof MapCtor) {
      apply(mapEach, value, [(v, k) => add(inspect(k, depth + 1, seen) + " => " + inspect(v, depth + 1, seen))]);
      out = wrap("Map(" + value.size + ") {", parts, "}");
    } else if (value instanceof SetCtor) {
      apply(setEach, value, [(v) => add(inspect(v, depth + 1, seen))]);
      out = wrap("Set(" + value.size + ") {", parts, "}");
    } else {
      const names = keys(value), shown = names.length > 100 ? 100 : names.length;
      for (let i = 0; i < shown; i++) {
        const own = describeOwn(value, names[i]);
        add((/^[A-Za-z_$][\w$]*$/.test(names[i]) ? names[i] : quote(names[i])) + ": " + (own && own.get ? "[Getter]" : inspect(value[names[i]], depth + 1, seen)));
      }
      if (names.length > shown) add("... " + (names.length - shown) + " more items");
      const proto = getPrototypeOf(value), kind = proto === null ? "[Object: null prototype] " : proto.constructor && proto.constructor !== Object && proto.constructor.name ? proto.constructor.name + " " : "";
      out = wrap(kind + "{", parts, "}");
    }
    seen.delete(value);
    return out;
  };
  const SeenCtor = Set;
  const line = (args) => {
    const out = [];
    for (let i = 0; i < args.length; i++) {
      let s;
      try { s = typeof args[i] === "string" ? args[i] : inspect(args[i], 0, new SeenCtor()); } catch { s = "(a value that cannot be printed)"; }
      apply(push, out, [s]);
    }
    return apply(join, out, [" "]) + "\n";
  };
  const out = (...args) => { send(STDOUT, 0, line(args)); };
  const err = (...args) => { send(STDERR, 0, line(args)); };
  hide(G, "console", {
    log: out, info: out, debug: out, table: out, dir: (value) => out(value), warn: err, error: err, trace: err,
    assert: (ok, ...args) => { if (!ok) err("Assertion failed" + (args.length ? ":" : ""), ...args); },
    group: out, groupEnd: () => {}, time: () => {}, timeEnd: () => {}, count: () => {},
  });
  hide(G, "structuredClone", (value) => { const json = stringify(value); return json === undefined ? undefined : parse(json); });

  G.input = null;

  return (op, value) => ops[op](value);
})
