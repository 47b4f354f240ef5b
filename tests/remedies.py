"""All remedies in the sources, with sample values where a remedy has values of a call."""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

import txlog
from txlog.base.errors import TxlogError
from txlog.base.remedies import pieces

Case = TypeVar("Case")
HOME = Path(txlog.__file__).parent
SAMPLE = "x"  # For a value that only a call knows.
_MOST = 12  # Of the alternatives of one remedy.
# Findings of `doctor` and reasons to keep versions have remedies, too.
_POSITIONS = {"Finding": 6, "Held": 2}


class Remedy(NamedTuple):
    """A remedy: the file, the function and the class in which it is written, and its text."""

    path: str
    function: str
    line: int
    text: str

    @property
    def place(self) -> str:
        """What stays when lines are added above it."""
        return f"{self.path}:{self.function}"


class _Module:
    """The values that a module gives to remedies."""

    def __init__(self, path: Path) -> None:
        self.path = path.relative_to(HOME).as_posix()
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.positions = dict(_POSITIONS)  # Of the parameter `remedy` of functions, by their names.
        self.returned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef):
                names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
                if "remedy" in names:
                    self.positions[node.name] = names.index("remedy") - (names[0] == "self")
                self.returned[node.name] = [
                    one.value for one in ast.walk(node)
                    if isinstance(one, ast.Return) and one.value is not None
                ]  # fmt: skip

    @property
    @cache  # noqa: B019  # There are as many modules as files.
    def values(self) -> dict[str, Any]:
        name = "txlog." + self.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        try:
            return vars(import_module(name))
        except ImportError:  # It needs a package that is not installed.
            return {}

    def given(self) -> Iterator[tuple[str, ast.expr]]:
        """Yield the expressions whose values are remedies, each with its function."""

        def walk(node: ast.AST, function: str) -> Iterator[tuple[str, ast.expr]]:
            for child in ast.iter_child_nodes(node):
                inner = function
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    inner = f"{function}.{child.name}" if function else child.name
                    arguments = getattr(child, "args", None)
                    if arguments is not None:
                        names = [one.arg for one in (*arguments.args, *arguments.kwonlyargs)]
                        if "remedy" in names:  # Its default.
                            pairs = zip(
                                arguments.args[::-1], arguments.defaults[::-1], strict=False
                            )
                            pairs = [*pairs, *zip(arguments.kwonlyargs, arguments.kw_defaults,
                                                  strict=True)]  # fmt: skip
                            yield from ((inner, value) for one, value in pairs
                                        if one.arg == "remedy" and value is not None)  # fmt: skip
                yield from self._of(child, inner)
                yield from walk(child, inner)

        yield from walk(self.tree, "")

    def _of(self, node: ast.AST, function: str) -> Iterator[tuple[str, ast.expr]]:
        if isinstance(node, ast.keyword) and node.arg == "remedy":
            yield function, node.value
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            place = self.positions.get(called)
            if place is not None and len(node.args) > place:
                yield function, node.args[place]
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                name = getattr(target, "attr", getattr(target, "id", ""))
                if name == "remedy":
                    yield function, node.value
                elif isinstance(target, ast.Tuple):
                    names = [getattr(one, "attr", "") for one in target.elts]
                    if "remedy" in names and isinstance(node.value, ast.Tuple):
                        yield function, node.value.elts[names.index("remedy")]

    def texts(self, node: ast.expr, depth: int = 0) -> list[str]:
        """Return what the expression may be."""
        if depth > 6:
            return [SAMPLE]
        if isinstance(node, ast.Constant):
            return [str(node.value)] if node.value is not None else []
        if isinstance(node, ast.IfExp):
            return self.texts(node.body, depth) + self.texts(node.orelse, depth)
        if isinstance(node, ast.BoolOp):
            return [text for one in node.values for text in self.texts(one, depth)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._joined([self.texts(node.left, depth), self.texts(node.right, depth)])
        if isinstance(node, ast.JoinedStr):
            return self._joined([self._part(one, depth) for one in node.values])
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(
            value := self.values.get(ast.unparse(node)), str
        ):
            return [value]
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "")
            if name in self.returned:
                return [text for one in self.returned[name] for text in self.texts(one, depth + 1)][
                    :_MOST
                ]
        return [SAMPLE]

    def _part(self, node: ast.expr, depth: int) -> list[str]:
        if not isinstance(node, ast.FormattedValue):
            return self.texts(node, depth)
        if node.conversion == ord("r"):
            return [repr(SAMPLE)]
        if isinstance(node.value, ast.Call):
            made = ast.unparse(node.value)
            return ["{'x': None}" if made.startswith("dict") else SAMPLE]
        found = self.texts(node.value, depth)
        return ["1"] if found == [SAMPLE] and _is_number(node.value) else found

    @staticmethod
    def _joined(parts: list[list[str]]) -> list[str]:
        return list(islice(map("".join, product(*parts)), _MOST))


def _is_number(node: ast.expr) -> bool:
    words = ("version", "opens", "seed", "minutes", "hours", "dataset_id")
    return any(word in ast.unparse(node) for word in words)


@cache
def all_remedies() -> tuple[Remedy, ...]:
    """Return all remedies of errors, findings and reasons."""
    found = {}
    for path in sorted(HOME.rglob("*.py")):
        module = _Module(path)
        for function, node in module.given():
            for text in module.texts(node):
                if text.strip() not in ("", SAMPLE):
                    one = Remedy(module.path, function, node.lineno, text)
                    found.setdefault((one.place, text), one)
    return tuple(found.values())


def calls_of(text: str) -> list[str]:
    """Return the pieces of Python in a remedy."""
    return [code for is_code, code in pieces(text) if is_code]


def remedies_with_calls(*rooms: str) -> dict[str, list[str]]:
    """Return the remedies below these folders that name Python, each with its places.

    A remedy is called by its file and its pieces of Python.
    """
    found: dict[str, list[str]] = {}
    for one in all_remedies():
        codes = calls_of(one.text)
        if codes and one.path.startswith(rooms):
            found.setdefault(f"{one.path}: {' | '.join(codes)}", []).append(one.place)
    return found


def refused(call: Callable[[], object]) -> list[str]:
    """Return the pieces of Python in the remedy of a call that fails."""
    with pytest.raises(TxlogError) as caught:
        call()
    return calls_of(caught.value.remedy)


def adding_to(cases: dict[str, Case]) -> Callable[[str], Callable[[Case], Case]]:
    """Return a decorator that adds functions to cases, each under a key of its own."""

    def case(key: str) -> Callable[[Case], Case]:
        def known(function: Case) -> Case:
            assert key not in cases
            cases[key] = function
            return function

        return known

    return case
