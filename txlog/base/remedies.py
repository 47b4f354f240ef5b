"""What remedies say to those who do not call Python: the same, in the words of the command line.

A remedy names calls and arguments as Python has them. Another surface shows `reworded` texts: each
piece of Python is replaced by what its users write, or marked as one for Python. Pure.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from txlog.base.texts import without_secrets

# The beginnings of dotted names that are Python.
_HEADS = (
    "t", "table", "Table", "txlog", "pa", "pyarrow", "alter", "optimize", "maintenance", "pins",
    "indexes", "FragmentOperation", "FragmentMetadata", "Loader", "Datasets", "jax", "spark.read",
    "df", "DeltaTable", "datasets",
)  # fmt: skip
# Features, options and packages that look like them.
_PLAIN = frozenset({"txlog.coordinator", "txlog.fragments", "txlog.paths", "txlog.training"})
CALLS = frozenset(
    {
        "between", "Code", "col", "Datasets", "diff", "fetch", "format", "history", "Image",
        "Input", "Limits", "load", "location", "Ragged", "restore", "save", "state_dict",
        "tableName", "vacuum",
    }
)  # fmt: skip
"""Names without dots that are calls of Python where `(` follows. All others are SQL."""
NAMES = frozenset(
    {
        "catalog_commits", "deleted_fragment_ids", "except_cols", "merge_columns",
        "new_values", "partition_by", "replace_columns", "truncate_history",
        "world_size", "write_fragments",
    }
)  # fmt: skip
"""Names of methods and arguments that remedies have without dots and brackets."""

_VALUE = r"""(?:"[^"]*"|'[^']*'|True|False|None|…|\d+|(?=[\[{(])|txlog\.\w+(?=\())"""
_CODE = re.compile(
    rf"""
    (?<![\w.`'"/=-])
    (?:
        (?P<keyword>[a-z]\w*={_VALUE})
      | (?P<dotted>(?:{"|".join(map(re.escape, _HEADS))})(?:\.[A-Za-z_]\w*)+|\.[a-z]\w*(?=\()
          | [A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?=\())
      | (?P<bare>[A-Za-z]\w*(?=\())
      | (?P<name>[a-z]+(?:_[a-z]+)+)(?!\w)
      | (?P<literal>(?={{["']|\[["']|\("))
    )
    """,
    re.VERBOSE,
)
# A command: its names, `TABLE`, arguments; each option with its value is a tuple.
Words = list[str | tuple[str, ...]]
# A list of names in a table or a log, to the end of its sentence. These only look like Python.
_CHOICES = re.compile(r"\bChoose from (?:(?!\. [A-Z])[^\n])*")
_MORE = re.compile(r"\.[A-Za-z_]\w*")
Made = TypeVar("Made")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def pieces(text: str, names: frozenset[str] = NAMES) -> Iterator[tuple[bool, str]]:
    """Yield the pieces of a remedy in their order: whether each is Python, and its text.

    Parameters
    ----------
    names
        Words that are Python although nothing but their spelling says so.
    """
    begin = place = 0
    lists = [found.span() for found in _CHOICES.finditer(text)]
    while found := _CODE.search(text, place):
        start, end = found.span()
        after = max((last for first, last in lists if first <= start < last), default=None)
        if after is not None:
            place = after
            continue
        kind = found.lastgroup
        place = max(end, start + 1)
        if text[end : end + 1] in _CLOSING and kind != "name":
            end = _closed(text, end)
            while more := _MORE.match(text, end):  # A method of what the call returns.
                end = more.end()
                end = _closed(text, end) if text[end : end + 1] == "(" else end
        code = text[start:end]
        if (
            (kind == "bare" and found["bare"] not in CALLS)
            or (kind == "name" and code not in names)
            or (kind == "dotted" and code in _PLAIN)
        ):
            continue
        yield False, text[begin:start]
        yield True, code
        begin = place = end
    yield False, text[begin:]


def _closed(text: str, start: int) -> int:
    """Return the position after the bracket that closes the one at `start`."""
    awaited: list[str] = []
    quote = ""
    for place in range(start, len(text)):
        sign = text[place]
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in _CLOSING:
            awaited.append(_CLOSING[sign])
        elif awaited and sign == awaited[-1]:
            awaited.pop()
            if not awaited:
                return place + 1
    return len(text)


def reworded(text: str, words: Callable[[str], str | None], names: frozenset[str] = NAMES) -> str:
    """Return a remedy with each piece of Python replaced by `words(piece)`.

    A piece for which that is None stays, with the note that it is for Python.
    """
    said = []
    for is_code, piece in pieces(text, names):
        said.append((words(piece) or f"{piece} (from Python)") if is_code else piece)
    return "".join(said)


@dataclass(frozen=True)
class Asked:
    """The command that somebody called.

    `table` is its table as it was written, `root` its folder of data sets. `options` has what users
    write for each parameter: an option such as `--where`, or the name of an argument such as
    `SOURCE`. `others` are tables or files that it names besides. `is_known` is false if the remedy
    is about a table, but nobody knows which: then there are no commands for it.
    """

    table: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    is_known: bool = True
    root: str | None = None

    def option(self, argument: str) -> str | None:
        """Return what users write for an argument of Python; None if the command has no such."""
        for name in (argument, *_ALSO.get(argument, ())):
            if name in self.options:
                return self.options[name]
        return None


# Arguments of Python, and the parameters of commands with another name.
_ALSO: dict[str, tuple[str, ...]] = {
    "columns": ("column", "z_order"),
    "constraints": ("check",),
    "data": ("source",),
    "datasets": ("source",),
    "end_version": ("end",),
    "fields": ("columns",),
    "grpc_port": ("grpc",),
    "names": ("properties",),
    "programs": ("program",),
    "properties": ("property_",),
    "predicate": ("on", "where"),
    "schema": ("column",),
    "start_version": ("start",),
    "sources": ("source",),
    "tables": ("table",),
    "tags": ("tag",),
    "type": ("kind",),
    "updates": ("set_",),
    "uri": ("table", "folder"),
    "wait_s": ("wait",),
    "sql": ("query",),
    "query": ("sql",),
}
# Arguments with a value that a command has as an option of its own.
_FLAGS: dict[tuple[str, Any], str] = {
    ("schema_mode", "merge"): "merge_schema",
    ("enforce_retention_duration", False): "no_enforce",
    ("dry_run", False): "delete_files",
}
# Arguments with a value for which there is another command.
_INSTEAD: dict[tuple[str, Any], Words] = {("mode", "append"): ["append", "TABLE", "SOURCE"]}


def _set(properties: Mapping[str, str] | None = None) -> Words:
    given = [f"{name}={value}" for name, value in (properties or {}).items()]
    return ["set", "TABLE", *(given or ["NAME=VALUE"])]


def _repair(dry_run: bool = True, missing_files: bool = False) -> Words:
    flags = [] if dry_run else [("--write",)]
    return ["repair", "TABLE", *flags, *([("--missing-files",)] if missing_files else [])]


def _cleans(command: str) -> Callable[..., Words]:
    def clean(retention_hours: float | None = None, dry_run: bool = True) -> Words:
        hours = [] if retention_hours is None else [("--retention-hours", str(retention_hours))]
        return [command, "TABLE", *hours, *([] if dry_run else [("--delete",)])]

    return clean


def _drop_feature(feature: str = "FEATURE", truncate_history: bool = False) -> Words:
    flags = [("--truncate-history",)] if truncate_history else []
    return ["alter", "drop-feature", "TABLE", feature, *flags]


def _set_nullable(column: str = "COLUMN", nullable: bool = True) -> Words:
    return ["alter", "nullable", "TABLE", column, *([] if nullable else [("--no",)])]


def _index(columns: Any = "COLUMN") -> Words:
    names = [columns] if isinstance(columns, str) else list(columns)
    return ["index", "create", "TABLE", *(names if names != [...] else ["COLUMN"])]


COMMANDS: dict[str, Callable[..., Words]] = {
    "Table": lambda _=None: ["show", "TABLE"],
    "alter.add_constraint": lambda _=None: ["constraint", "TABLE", "NAME", "SQL"],
    "alter.add_features": lambda *names: [
        "alter", "add-feature", "TABLE", *(names or ["FEATURE"])
    ],
    "alter.cluster_by": lambda *names: ["alter", "cluster-by", "TABLE", *(names or ["COLUMN"])],
    "alter.drop_constraint": lambda name="NAME": ["constraint", "TABLE", name, ("--drop",)],
    "alter.drop_feature": _drop_feature,
    "alter.set_nullable": _set_nullable,
    "alter.set_properties": _set,
    "capabilities": lambda: ["capabilities", "TABLE"],
    "clone": lambda _=None: ["clone", "TABLE", "TARGET"],
    "create": lambda _=None: ["create", "TABLE", ("--column", "NAME=TYPE")],
    "datasets.dataset.undelete": lambda _="NUMBER": ["datasets", "undelete", "ROOT", str(_)],
    "delete": lambda where="SQL": ["delete", "TABLE", ("--where", where)],
    "doctor": lambda: ["doctor", "TABLE"],
    "history": lambda: ["history", "TABLE"],
    "indexes.create": _index,
    "indexes.drop": lambda name="NAME": ["index", "drop", "TABLE", name],
    "lookup": lambda: ["lookup", "TABLE", "KEY", ("--on", "COLUMN")],
    "maintenance.checkpoint": lambda: ["checkpoint", "TABLE"],
    "maintenance.expire": _cleans("expire"),
    "maintenance.repair": _repair,
    "optimize.compact": lambda: ["compact", "TABLE"],
    "pins.create": lambda name="NAME": ["pin", "TABLE", name],
    "pins.delete": lambda name="NAME": ["pin", "TABLE", name, ("--delete",)],
    "pins.update": lambda name="NAME": [
        "pin", "TABLE", name, ("--version", "VERSION"), ("--move",)
    ],
    "restore": lambda version="VERSION": ["restore", "TABLE", ("--version", str(version))],
    "vacuum": _cleans("vacuum"),
    "versions": lambda: ["versions", "TABLE"],
    "write": lambda: ["create", "TABLE", "SOURCE"],
}  # fmt: skip
"""For calls, by their names without `Table.`: the command that does the same with the arguments."""
_OF_TABLE = re.compile(r"^(?:txlog\.)?(?:(?:t|table|Table)\.)?")


def on_command_line(text: str, asked: Asked) -> str:
    """Return a remedy in the words of the command line, for somebody who called a command."""
    written = frozenset(name for name in asked.options if "_" in name)
    return reworded(text, lambda code: _typed(code, asked), NAMES | written)


def _typed(code: str, asked: Asked) -> str | None:
    """Return what users type for a piece of Python; None if the command line has nothing."""
    try:
        tree: Any = ast.parse(code.replace("…", "...").removeprefix("."), mode="eval").body
    except SyntaxError:
        try:
            tree = ast.parse(f"f({code.replace('…', '...')})", mode="eval").body
        except SyntaxError:
            return None
        (keyword,) = tree.keywords or (None,)
        return None if keyword is None else _option(keyword.arg, keyword.value, asked)
    if isinstance(tree, ast.Name) and tree.id in asked.options:
        return asked.options[tree.id]
    words = _made(tree, COMMANDS)
    return None if words is None else _line(words, asked)


def _made(tree: ast.expr, known: Mapping[str, Callable[..., Made]]) -> Made | None:
    """Return what `known` makes of a call, or of the name of a method; None if it has nothing."""
    call = tree if isinstance(tree, ast.Call) else None
    name = ast.unparse(tree if call is None else call.func)
    if call is not None and isinstance(call.func, ast.Attribute):
        inner = call.func.value
        if isinstance(inner, ast.Call) and not call.args:  # `datasets.dataset(3).undelete()`.
            name = f"{ast.unparse(inner.func)}.{call.func.attr}"
            call = ast.Call(call.func, inner.args, [*inner.keywords, *call.keywords])
    make = known.get(_OF_TABLE.sub("", name))
    if make is None:
        return None
    try:
        given = [_literal(one) for one in call.args] if call else []
        named = {str(one.arg): _literal(one.value) for one in call.keywords} if call else {}
        return make() if given == [...] and not named else make(*given, **named)
    except (TypeError, ValueError):  # It lacks one of the arguments.
        return None


def _properties(properties: Mapping[str, str] | None = None) -> str:
    given = (properties or {"NAME": "VALUE"}).items()
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in given)
    return f"ALTER TABLE {{}} SET TBLPROPERTIES ({pairs})"


def _drop_feature_in_sql(feature: str = "FEATURE", truncate_history: bool = False) -> str:
    return f"ALTER TABLE {{}} DROP FEATURE {feature}" + " TRUNCATE HISTORY" * truncate_history


STATEMENTS: dict[str, Callable[..., str]] = {
    "alter.add_constraint": lambda: "ALTER TABLE {} ADD CONSTRAINT NAME CHECK (CONDITION)",
    "alter.add_features": lambda *names: _properties(
        {f"delta.feature.{name}": "supported" for name in names}
    ),
    "alter.cluster_by": lambda: "ALTER TABLE {} CLUSTER BY (COLUMN)",
    "alter.drop_constraint": lambda name="NAME": f"ALTER TABLE {{}} DROP CONSTRAINT {name}",
    "alter.drop_feature": _drop_feature_in_sql,
    "alter.set_properties": _properties,
    "history": lambda: "DESCRIBE HISTORY {}",
    "optimize.compact": lambda: "OPTIMIZE {}",
    "restore": lambda version="VERSION": f"RESTORE TABLE {{}} TO VERSION AS OF {version}",
}
"""For calls, by their names without `Table.`: the statement of Delta's SQL that does the same."""


def in_sql(text: str, table: str | None) -> str:
    """Return a remedy with statements of SQL for the calls that have one.

    All other pieces stay: statements are passed to a function of Python. `table` is the table's
    root; None: it is called `t`.
    """
    name = "t" if table is None else f"delta.`{table}`"

    def stated(code: str) -> str:
        try:
            tree = ast.parse(code.replace("…", "...").removeprefix("."), mode="eval").body
        except SyntaxError:
            return code
        made = _made(tree, STATEMENTS)
        return code if made is None else made.format(name)

    return reworded(text, stated)


def _option(name: str, value: ast.expr, asked: Asked) -> str | None:
    """Return the option for an argument with a value."""
    try:
        given = _literal(value)
    except ValueError:
        return None
    key = (name, given) if isinstance(given, str | bool) else None
    if key in _FLAGS and _FLAGS[key] in asked.options:
        return asked.options[_FLAGS[key]]
    if key in _INSTEAD:
        return _line(_INSTEAD[key], asked)
    option = asked.option(name)
    if option is None or given is False or given is None:
        return None
    if not option.startswith("-") or given is True:
        return option
    if isinstance(given, dict):
        shown = "TABLE" if name == "tables" else "VALUE"
        values: list[Any] = [f"{key}={shown if one is ... else one}" for key, one in given.items()]
    else:
        values = list(given) if isinstance(given, list | tuple) else [given]
    return " ".join(f"{option} {_word('VALUE' if one is ... else str(one))}" for one in values)


def _literal(value: ast.expr) -> Any:
    """Return a value; of a variable, which stands for any value, the name in capital letters."""
    return value.id.upper() if isinstance(value, ast.Name) else ast.literal_eval(value)


def _line(words: Words, asked: Asked) -> str | None:
    """Return a command. What begins with `-` and is no option comes last, after `--`."""
    of_root = "ROOT" in words
    if not (of_root or asked.is_known):
        return None  # A command for another table could lose its rows.
    named = asked.root if of_root else asked.table
    table = without_secrets(named or ("ROOT" if of_root else "TABLE"))
    place = words.index("ROOT" if of_root else "TABLE")
    command = [str(word) for word in words[:place]]
    given = [table, *(word for word in words[place + 1 :] if isinstance(word, str))]
    options = [one for word in words if isinstance(word, tuple) for one in word]
    if any(word.startswith("-") for word in given):
        shown = [*command, *options, "--", *given]
    else:
        shown = [*command, *given, *options]
    return f"`{' '.join(['txlog', *map(_word, shown)])}`"


def _word(text: str) -> str:
    return shlex.quote(text)
