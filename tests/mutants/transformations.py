"""Transformations of a syntax tree, written as source; nodes are compared by the source that `ast.unparse` returns."""

import ast
from copy import deepcopy
from typing import Any

_LISTS = {"body", "orelse", "finalbody", "args", "elts", "patterns"}


class Transformation(ast.NodeTransformer):
    """Transforms the node that matches; a node that a transformation adds is not visited."""

    def matches(self, node: ast.AST) -> int:
        """Return how many matches *node* has, without those of its descendants."""
        raise NotImplementedError

    def change(self, node: Any) -> ast.AST:
        """Return the transformed *node*, which may be changed in place."""
        raise NotImplementedError

    def visit(self, node: ast.AST) -> ast.AST:
        """Transform *node* if it matches, its children otherwise."""
        if not self.matches(node):
            return self.generic_visit(node)
        return ast.copy_location(self.change(node), node)


class Replace(Transformation):
    """Replaces an expression by another expression, or a statement by another statement."""

    def __init__(self, source: str, by: str) -> None:
        self._source, self._by = _parse(source), _parse(by)
        self._type = ast.expr if isinstance(self._source, ast.expr) else ast.stmt

    def matches(self, node: ast.AST) -> int:
        """Return whether *node* is the expression or statement."""
        return isinstance(node, self._type) and ast.unparse(node) == ast.unparse(self._source)

    def change(self, node: Any) -> ast.AST:
        """Return the replacement."""
        return deepcopy(self._by)


class ReplaceArgument(Transformation):
    """Replaces a positional argument in the calls of one function."""

    def __init__(self, function: str, argument: str, *, by: str) -> None:
        self._function, self._argument, self._by = function, ast.unparse(_parse(argument)), _parse(by)

    def matches(self, node: ast.AST) -> int:
        """Return whether *node* calls the function with the argument."""
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != self._function:
            return 0
        return [*map(ast.unparse, node.args)].count(self._argument)

    def change(self, node: Any) -> ast.AST:
        """Replace the argument."""
        node.args = [self._by if ast.unparse(argument) == self._argument else argument for argument in node.args]
        return node


class Drop(Transformation):
    """Drops a statement, argument, element, operand of ``and`` or ``or``, or alternative of a pattern."""

    def __init__(self, source: str) -> None:
        self._source = ast.unparse(_parse(source))

    def matches(self, node: ast.AST) -> int:
        """Return how many children of *node* have the source."""
        return sum([*map(ast.unparse, nodes)].count(self._source) for _, nodes in _lists(node))

    def change(self, node: Any) -> ast.AST:
        """Remove the child; one operand or alternative that remains stands alone, and an empty body passes."""
        for name, nodes in _lists(node):
            rest = [child for child in nodes if ast.unparse(child) != self._source]
            if len(rest) == 1 and isinstance(node, ast.BoolOp | ast.MatchOr):
                return rest[0]
            setattr(node, name, rest or ([ast.Pass()] if name == "body" else []))
        return node


class DropKeyword(Transformation):
    """Drops the keyword argument of a name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def matches(self, node: ast.AST) -> int:
        """Return whether *node* is a call with the keyword."""
        return isinstance(node, ast.Call) and any(keyword.arg == self._name for keyword in node.keywords)

    def change(self, node: Any) -> ast.AST:
        """Remove the keyword."""
        node.keywords = [keyword for keyword in node.keywords if keyword.arg != self._name]
        return node


class IterateOnce(Transformation):
    """Executes a loop at most once; a ``for`` is named by its iterable, a ``while`` by its condition."""

    def __init__(self, expression: str) -> None:
        self._expression = ast.unparse(_parse(expression))

    def matches(self, node: ast.AST) -> int:
        """Return whether *node* is the loop."""
        header = node.iter if isinstance(node, ast.For) else node.test if isinstance(node, ast.While) else None
        return header is not None and ast.unparse(header) == self._expression

    def change(self, node: Any) -> ast.AST:
        """Return an ``if`` for a ``while``, and a ``for`` over the first element."""
        if isinstance(node, ast.While):
            return ast.If(node.test, node.body, node.orelse)
        node.iter = _parse(f"[*{self._expression}][:1]")
        return node


def transform(source: str, path: str, transformation: Transformation) -> str:
    """Return *source* with the function or class at *path*, such as ``Loop._cycle``, transformed.

    Raises `LookupError` unless exactly one node matches.
    """
    module = ast.parse(source)
    definition: ast.AST = module
    for name in path.split("."):
        definition = _find_definition(definition, name)
    count = sum(map(transformation.matches, ast.walk(definition)))
    if count != 1:
        raise LookupError(f"{count} nodes of {path} match")
    transformation.visit(definition)
    return ast.unparse(ast.fix_missing_locations(module))


def _find_definition(parent: ast.AST, name: str) -> ast.AST:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    found = [child for child in ast.iter_child_nodes(parent) if isinstance(child, kinds) and child.name == name]
    if len(found) != 1:
        raise LookupError(f"it has {len(found)} definitions of {name!r}")
    return found[0]


def _parse(source: str) -> ast.expr | ast.stmt:
    """Parse one expression or statement."""
    (statement,) = ast.parse(source).body
    return statement.value if isinstance(statement, ast.Expr) else statement


def _lists(node: ast.AST) -> list[tuple[str, list[ast.AST]]]:
    """Return the fields of *node* with children that can be dropped."""
    fields = ((name, value) for name, value in ast.iter_fields(node) if isinstance(value, list))
    return [(name, value) for name, value in fields if name in _LISTS or isinstance(node, ast.BoolOp)]
