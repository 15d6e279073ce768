"""Nobody reads a message's content raw: a lint over our own code (R081 to R083).

`content` is a string or parts, so joins, format strings and JSON dumps of it silently give wrong text. The
lint flags a read of `.content`, `["content"]` or `.get("content")`, a destructured content, and later reads
of a variable that holds one, unless the value goes to a helper, a type or list check, an equality comparison,
or a place that keeps the union. It does not follow values through other calls.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HELPERS = {
    "text_of",
    "to_parts",
    "has_structured_parts",
    "isinstance",
    "type",
    "tainted_text_of",
    "result_text",
    "parts_of",
    "is_tainted",
    "is_text",
}
UNION_FIELDS = {"content", "parts", "update"}

# Modules whose business is the shape of content itself or a vendor's JSON, where "content" is another thing.
# Each with its reason.
EXEMPT = {
    "agent/providers/anthropic.py": "a vendor's own `content` list in its answers; messages by isinstance",
    "agent/providers/openai_chat.py": "a vendor's own `content` in its answers; messages by isinstance",
    "agent/providers/openai_responses.py": "a vendor's own `content` in its answers; messages by isinstance",
    "agent/providers/gemini.py": "a vendor's own `content` in its answers",
    "agent/_response.py": "`Response.content` is always a string",
    "agent/providers/scripted.py": "`Response.content` is always a string",
    "agent/providers/_over.py": "the content of an httpx response",
    "src/fumehood/testing/_vendor_gemini.py": "a vendor's own `content`",
}


class ContentLint(ast.NodeVisitor):
    """Collects raw reads of content in one module."""

    def __init__(self) -> None:
        self.faults: list[tuple[int, str]] = []
        self._parents: dict[ast.AST, ast.AST] = {}
        self._holders: list[set[str]] = [set()]

    def check(self, source: str) -> list[tuple[int, str]]:
        tree = ast.parse(source)
        for parent in ast.walk(tree):
            for child in ast.iter_child_nodes(parent):
                self._parents[child] = parent
        self.visit(tree)
        return sorted(self.faults)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._holders.append(set())
        self.generic_visit(node)
        self._holders.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        if _is_content(node.value):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self._holders[-1].add(target.id)
        elif isinstance(node.value, ast.Name) is False:
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self._holders[-1].discard(target.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if _is_content(node):
            self._judge(node, ast.unparse(node))
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if _is_content(node):
            self._judge(node, ast.unparse(node))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_content(node):
            self._judge(node, ast.unparse(node))
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and any(node.id in scope for scope in self._holders):
            self._judge(node, node.id)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        for name, pattern in zip(node.kwd_attrs, node.kwd_patterns, strict=True):
            if (
                name == "content"
                and isinstance(pattern, ast.MatchAs)
                and pattern.pattern is None
                and pattern.name
            ):
                self.faults.append((node.lineno, f"content destructured into {pattern.name}"))
        self.generic_visit(node)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        for key, pattern in zip(node.keys, node.patterns, strict=True):
            if (
                isinstance(key, ast.Constant)
                and key.value == "content"
                and isinstance(pattern, ast.MatchAs)
                and pattern.pattern is None
            ):
                self.faults.append((node.lineno, "content destructured"))
        self.generic_visit(node)

    def _judge(self, node: ast.expr, shown: str) -> None:
        stored = isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)
        if not (stored or _keeps_union(self._parents[node], node) or self._narrowed(node)):
            self.faults.append((node.lineno, shown))

    def _narrowed(self, node: ast.expr) -> bool:
        """Whether a type check of the same expression guards this read: an enclosing test, or an
        earlier one that leaves the block.
        """
        wanted = ast.dump(node)
        child: ast.AST = node
        while (parent := self._parents.get(child)) is not None:
            tests = (
                [parent.test]
                if isinstance(parent, ast.If | ast.IfExp | ast.While) and child is not parent.test
                else []
            )
            if isinstance(parent, ast.BoolOp) and isinstance(child, ast.expr):
                tests += parent.values[: parent.values.index(child)]
            if isinstance(parent, ast.comprehension):
                tests += parent.ifs
            if isinstance(parent, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
                tests += [test for generator in parent.generators for test in generator.ifs]
            for block in ("body", "orelse", "finalbody"):
                body = getattr(parent, block, None)
                if isinstance(body, list) and child in body:
                    tests += [s.test for s in body[: body.index(child)] if isinstance(s, ast.If)]
                    tests += [s.test for s in body[: body.index(child)] if isinstance(s, ast.Assert)]
            if any(_checks_type(test, wanted) for test in tests):
                return True
            child = parent
        return False


def _keeps_union(parent: ast.AST, node: ast.expr) -> bool:
    """Whether the place that the value goes to takes either form."""
    match parent:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return node in parent.args and name in HELPERS
        case ast.keyword(arg=name):
            return name in UNION_FIELDS
        case ast.Compare():
            return all(isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot) for op in parent.ops)
        case ast.IfExp():
            return node is not parent.test
        case ast.Assign() | ast.NamedExpr() | ast.AnnAssign() | ast.Return() | ast.Dict():
            return True  # a variable that takes it is watched
        case _:
            return False


def _is_content(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "content"
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "content"
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value == "content"
    )


def _checks_type(test: ast.AST, wanted: str) -> bool:
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "isinstance"
        and ast.dump(call.args[0]) == wanted
        for call in ast.walk(test)
    )


def _modules() -> list[Path]:
    folders = [ROOT / name for name in ("agent", "src/fumehood")]
    return sorted(
        path
        for folder in folders
        for path in folder.rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents)
    )


@pytest.mark.requirement("R081")
@pytest.mark.requirement("R082")
def test_no_module_of_ours_reads_content_raw() -> None:
    faults = {}
    for path in _modules():
        name = str(path.relative_to(ROOT))
        if name not in EXEMPT and (found := ContentLint().check(path.read_text(encoding="utf-8"))):
            faults[name] = found
    assert faults == {}


def test_every_exemption_is_of_a_module_that_exists_and_needs_it() -> None:
    for name in EXEMPT:
        assert ContentLint().check((ROOT / name).read_text(encoding="utf-8")), f"{name} needs no exemption"


@pytest.mark.requirement("R082")
@pytest.mark.parametrize(
    "source",
    [
        "print(message.content)",
        'x = f"{message.content}"',
        '"".join(message.content)',
        'json.dumps(message["content"])',
        'str(message.get("content"))',
        "for part in message.content: pass",
        "message.content + 'x'",
        "text = message.content\nprint(text)",
        "text = message['content']\nlen(text)",
        "match message:\n    case Message(content=body): print(body)",
        "match message:\n    case {'content': body}: print(body)",
        "if isinstance(other.content, str): message.content.upper()",
        "message.content[0]",
    ],
)
def test_the_lint_flags_raw_reads(source: str) -> None:
    assert ContentLint().check(source)


@pytest.mark.requirement("R083")
@pytest.mark.parametrize(
    "source",
    [
        "text_of(message.content)",
        "to_parts(message['content'])",
        "has_structured_parts(message.content)",
        "isinstance(message.content, list)",
        "type(message.content)",
        "message.content == 'x'",
        "Message(role='user', content=message.content)",
        "copy = {**message, 'content': message['content']}",
        "text = message.content\nto_parts(text)",
        "def f(m):\n    return m.content",
        "if isinstance(message.content, str): print(message.content)",
        "isinstance(m.content, str) and print(m.content)",
        "parts = m.content\nif isinstance(parts, str): f()\nfor part in parts: pass",
        "message.content = 'x'",
    ],
)
def test_the_lint_lets_helpers_checks_and_unions_pass(source: str) -> None:
    assert ContentLint().check(source) == []
