"""The user's function as a generator: same file, same lines, so that pdb and tracebacks show the
user's source.

Calls go through `__call__`, which may suspend the unit (barriers, funcs that hold barriers); names
of topology become the unit's own values; assigned names keep one dtype.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from cubepy.compiler.source import source_of


@lru_cache(maxsize=4096)
def generator_of(fn: Callable) -> Callable[..., Any]:
    """The function as a generator function whose first parameter is the run; it sees the same
    globals and cells.
    """
    free = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    return with_names(code_of(fn), fn.__globals__, free)


def with_names(code: CodeType, scope: dict[str, Any], free: dict[str, Any]) -> Callable[..., Any]:
    """The function of some code whose free names are these globals and cells."""
    return FunctionType(code, scope, code.co_name, None, tuple(free[n] for n in code.co_freevars))  # type: ignore[return-value]


@lru_cache(maxsize=4096)
def code_of(fn: Callable) -> CodeType:
    """The code of the generator function."""
    source = source_of(fn)
    tree = source.own_tree()
    names = source.locals
    tree.decorator_list = []
    tree.returns = None
    parameters = [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]
    tree.args = ast.arguments(
        posonlyargs=[],
        args=[ast.arg("__run__")] + [ast.arg(a.arg) for a in parameters],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    _at(tree.args, tree)
    rewriter = _Rewriter(names)
    start = f"__types__ = {{'': {tree.name!r}}}\nif False:\n    yield"
    body: list[ast.stmt] = [*ast.parse(start).body]
    for (
        a
    ) in parameters:  # on the line of the parameter, or a debugger would stop for them elsewhere
        known = [
            ast.Name("__types__", ast.Load()),
            ast.Constant(a.arg),
            ast.Name(a.arg, ast.Load()),
        ]
        body.append(_at(ast.Assign([ast.Name(a.arg, ast.Store())], _runtime("entered", known)), a))
    for stmt in tree.body:
        out = rewriter.visit(stmt)
        body.extend(out if isinstance(out, list) else [out])
    tree.body = body
    module = ast.Module([tree], [])
    free = fn.__code__.co_freevars
    if free:  # the closure is passed in as the parameters of an outer function
        outer = ast.parse(f"def __outer__({', '.join(free)}):\n    pass").body[0]
        assert isinstance(outer, ast.FunctionDef)
        outer.body = [tree, *ast.parse(f"return {tree.name}").body]
        module = ast.Module([outer], [])
    code = compile(module, source.file, "exec")
    for _ in range(2 if free else 1):
        code = next(c for c in code.co_consts if isinstance(c, CodeType))
    return _further_down(code, source.first_line - 1)


def _further_down(code: CodeType, lines: int) -> CodeType:
    """Code, and that of the functions in it, so many lines further down in its file."""
    inside = tuple(
        _further_down(c, lines) if isinstance(c, CodeType) else c for c in code.co_consts
    )
    return code.replace(co_firstlineno=code.co_firstlineno + lines, co_consts=inside)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.conditions = 0

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id not in self.names:
            return _at(_runtime("wrap", [node]), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            return node
        return _at(_runtime("attribute", [self.visit(node.value), ast.Constant(node.attr)]), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        args = ast.List([self.visit(a) for a in node.args], ast.Load())
        kwargs = ast.Dict(
            [ast.Constant(k.arg) if k.arg is not None else None for k in node.keywords],
            [self.visit(k.value) for k in node.keywords],
        )
        call = _runtime("call", [self.visit(node.func), args, kwargs])
        return _at(ast.YieldFrom(call), node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        """A tuple: its element is a generator function, since calls in it may suspend the unit."""
        (loop, *others) = node.generators
        if others or not _names_only(loop.target):
            return node  # in a branch that is not taken: the front end refuses it in others
        element = self.visit(node.elt)
        for test in reversed(loop.ifs):
            skipped = ast.Attribute(ast.Name("__run__", ast.Load()), "skipped", ast.Load())
            element = ast.IfExp(self.visit(test), element, skipped)
        nothing = ast.YieldFrom(ast.Tuple([], ast.Load()))  # or it would be no generator function
        body: ast.expr = ast.Subscript(
            ast.Tuple([element, nothing], ast.Load()), ast.Constant(0), ast.Load()
        )
        collect = _runtime("collected", [self.visit(loop.iter), _of_item(loop.target, body)])
        return _at(ast.YieldFrom(collect), node)

    def visit_refused(self, node: ast.AST) -> ast.AST:
        """What the front end refuses in a branch that is taken: it never runs, and calls that
        suspend the unit may not be in it.
        """
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_refused
    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = visit_refused

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return _at(_runtime("negated", [operand]), node)
        return _at(ast.UnaryOp(node.op, operand), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """One side is evaluated; both where the condition is a mask, which running it shows."""
        self.conditions += 1
        name = f"__condition{self.conditions}__"
        test = ast.NamedExpr(ast.Name(name, ast.Store()), self.visit(node.test))
        sides: list[ast.expr] = [
            ast.IfExp(
                _runtime(method, [ast.Name(name, ast.Load())]), self.visit(side), ast.Constant(None)
            )
            for method, side in (("holds", node.body), ("fails", node.orelse))
        ]
        return _at(_runtime("chosen", [test, *sides, *_site(node, 0)]), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """The operand that decides, in the dtype that both become."""
        result = self.visit(node.values[0])
        for number, other in enumerate(node.values[1:]):
            both = ast.BoolOp(node.op, [result, self.visit(other)])
            result = _runtime("joined", [both, *_site(node, number)])
        return _at(result, node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None or not isinstance(node.target, ast.Name):
            return self.generic_visit(node)
        value = _runtime("annotated", [self.visit(node.value), self.visit(node.annotation)])
        assign = _at(ast.Assign([node.target], value), node)
        return [assign, *self.rebound([node.target], node)]

    def visit_Assign(self, node: ast.Assign) -> Any:
        done = ast.Assign([self.target(t) for t in node.targets], self.visit(node.value))
        return [_at(done, node), *self.rebound(node.targets, node)]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        done = _at(ast.AugAssign(self.target(node.target), node.op, self.visit(node.value)), node)
        return [done, *self.rebound([node.target], node)]

    def visit_For(self, node: ast.For) -> Any:
        body: list[ast.stmt] = []
        for stmt in node.body:
            out = self.visit(stmt)
            body.extend(out if isinstance(out, list) else [out])
        return _at(ast.For(self.target(node.target), self.visit(node.iter), body, [], None), node)

    def target(self, node: ast.expr) -> Any:
        """A target, with the indices inside it rewritten."""
        if isinstance(node, ast.Subscript):
            return _at(
                ast.Subscript(self.visit(node.value), self.visit(node.slice), node.ctx), node
            )
        if isinstance(node, (ast.Tuple, ast.List)):
            return _at(type(node)([self.target(e) for e in node.elts], node.ctx), node)
        return node

    def rebound(self, targets: list[ast.expr], node: ast.AST) -> list[ast.stmt]:
        """`x = bind("x", x)` for every name that was assigned: it keeps one dtype."""
        out: list[ast.stmt] = []
        for t in targets:
            if isinstance(t, (ast.Tuple, ast.List)):
                out += self.rebound(t.elts, node)
            elif isinstance(t, ast.Name):
                known = [ast.Name("__types__", ast.Load()), ast.Constant(t.id)]
                value = _runtime("bind", [*known, ast.Name(t.id, ast.Load())])
                out.append(_at(ast.Assign([ast.Name(t.id, ast.Store())], value), node))
        return out


def _site(node: ast.expr, number: int) -> list[ast.expr]:
    """What tells an expression from others: its function, and where it stands there."""
    site = ast.Constant(f"@{node.lineno}:{node.col_offset}.{number}")
    return [ast.Name("__types__", ast.Load()), site]


def _names_only(target: ast.expr) -> bool:
    """Whether a target is a name, or a tuple of such."""
    if isinstance(target, ast.Tuple):
        return all(_names_only(t) for t in target.elts)
    return isinstance(target, ast.Name)


def _of_item(target: ast.expr, body: ast.expr) -> ast.Lambda:
    """`lambda item: body`, or `lambda item: (lambda a, b: body)(*item)` for a tuple of names."""
    if isinstance(target, ast.Name):
        return _lambda([target.id], body)
    assert isinstance(target, ast.Tuple)
    names = [f"__item{k}__" for k in range(len(target.elts))]
    for name, part in zip(names, target.elts, strict=True):
        if not isinstance(part, ast.Name):
            inner = _of_item(part, body)
            body = ast.YieldFrom(ast.Call(inner, [ast.Name(name, ast.Load())], []))
    own = [t.id if isinstance(t, ast.Name) else n for n, t in zip(names, target.elts, strict=True)]
    call = ast.Call(
        _lambda(own, body), [ast.Starred(ast.Name("__item__", ast.Load()), ast.Load())], []
    )
    return _lambda(["__item__"], ast.YieldFrom(call))


def _lambda(names: list[str], body: ast.expr) -> ast.Lambda:
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(n) for n in names], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    return ast.Lambda(arguments, body)


def _runtime(method: str, args: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name("__run__", ast.Load()), method, ast.Load()), args, [])


def _at(new: Any, old: ast.AST) -> Any:
    """A new node, standing where an old one stands; so do those in it which are new, too."""
    if "lineno" not in new._attributes or not hasattr(new, "lineno"):
        if "lineno" in new._attributes:
            ast.copy_location(new, old)
        for child in ast.iter_child_nodes(new):
            _at(child, old)
    return new
