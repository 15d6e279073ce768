"""The same programs here and in `node` and `python3`: the same answers."""

# ruff: noqa: E501 - scripts read better in one line
from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from fumehood.sandbox import ScriptResult, ScriptRunner
from tests.sandbox import programs

pytestmark = pytest.mark.anyio

NODE = """
const out = []; const text = require('fs').readFileSync(0, 'utf8');
(async () => {
  for (const code of JSON.parse(text)) {
    try {
      let value;
      if (code.includes('await')) {
        const cut = code.startsWith('await') ? -1 : code.lastIndexOf('; ');
        value = await eval('(async () => {' + code.slice(0, cut + 1) + 'return (' + code.slice(cut + 1) + ')})()');
      } else value = (0, eval)('{' + code + '}');
      out.push(['ok', JSON.parse(JSON.stringify(value) ?? 'null')]);
    } catch (e) { out.push(['error', e.name]); }
  }
  process.stdout.write(JSON.stringify(out));
})();
"""
# What a newer language than this node's has, and where QuickJS's text is its own.
NODE_TOO_OLD = (
    "union(",
    "groupBy",
    "withResolvers",
    ".toArray()",
    ".values().map",
    "/v.test",
    ".toSorted",
    ".with(",
)

PYTHON = """
import ast, json, sys
def run(code):
    space = {'__name__': '__main__'}
    tree = ast.parse(code)
    last = tree.body.pop()
    exec(compile(tree, '<s>', 'exec'), space)
    return eval(compile(ast.Expression(last.value), '<s>', 'eval'), space)
out = []
for code in json.load(sys.stdin):
    try: out.append(['ok', repr(run(code))])
    except Exception as e: out.append(['error', type(e).__name__])
print(json.dumps(out))
"""


def answer(result: ScriptResult) -> list[object]:
    """A result as the references give theirs."""
    return ["ok", result.value] if result.outcome == "ok" else ["error", result.error and result.error.type]


@pytest.mark.requirement("R017")
async def test_javascript_answers_like_node(runner: ScriptRunner) -> None:
    node = shutil.which("node")
    assert node is not None, (
        "node is the reference here; `make test` installs it (Debian: apt install nodejs)"
    )
    every = [p for p in programs.javascript() if not any(word in p for word in NODE_TOO_OLD)]  # newer than it
    every = [p for p in every if not (p.startswith("try") and "await" in p)]
    done = subprocess.run(
        [node, "-e", NODE], input=json.dumps(every), capture_output=True, text=True, timeout=120, check=True
    )
    expected = json.loads(done.stdout)
    assert len(every) == len(expected) > 400
    wrong = []
    for code, (kind, value) in zip(every, expected, strict=True):
        result = await runner.run(code)
        found = (
            ["ok", result.value] if result.outcome == "ok" else ["error", result.error and result.error.type]
        )
        if found != [kind, value]:
            wrong.append((code, [kind, value], found))
    assert wrong == []


async def test_what_node_does_not_know_yet_runs(runner: ScriptRunner) -> None:
    newer = [p for p in programs.javascript() if any(word in p for word in NODE_TOO_OLD)]
    failed = [(p, r.error) for p in newer if (r := await runner.run(p)).outcome != "ok"]
    assert failed == []


async def test_python_answers_like_python3(runner: ScriptRunner) -> None:
    every = programs.python()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PYTHON], input=json.dumps(every), capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    expected = json.loads(done.stdout)
    assert len(every) == len(expected) > 400
    wrong = []
    for code, (kind, value) in zip(every, expected, strict=True):
        head, _, last = code.rpartition("\n")
        result = await runner.run(
            f"{head}\nrepr({last})" if "\n" in code else f"repr(({code}))", lang="python"
        )
        found = (
            ["ok", result.value] if result.outcome == "ok" else ["error", result.error and result.error.type]
        )
        if found != [kind, value]:
            wrong.append((code, [kind, value], found))
    assert wrong == []
