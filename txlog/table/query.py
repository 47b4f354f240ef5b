"""SQL over tables, by duckdb or polars; and the magic `%%txlog` of notebooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from txlog.base.errors import (
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    TxlogError,
    UnsupportedFeatureError,
    in_callers_words,
    require_flags,
)
from txlog.scan.dataset import TableDataset
from txlog.table.key_joins import narrow
from txlog.table.table import Table

if TYPE_CHECKING:
    from sqlglot import exp

_AS_IT_IS = "read by the engine, which gives its filters to the table"
_MOMENTS = "Write VERSION AS OF 3, VERSION AS OF 'pin', or TIMESTAMP AS OF '2026-11-01'"
_SCHEMES = ("/", "\\", "~", ".")


@in_callers_words
def sql(
    query: str,
    tables: Mapping[str, Any] | None = None,
    *,
    engine: Literal["duckdb", "polars"] | None = None,
    root: str | os.PathLike[str] = "",
    storage_options: Mapping[str, Any] | None = None,
    use_index: bool = True,
) -> pa.Table:
    """Return what a query selects from tables: `SELECT`, in the SQL of the engine that runs it.

    The query names a table by a key of `tables`, or by its path: `FROM flights`, `FROM raw.flights`
    (the folder `raw/flights`), `FROM 's3://bucket/flights'`. `flights VERSION AS OF 3` and
    `flights TIMESTAMP AS OF '2026-11-01'` read older versions. Filters and columns are pushed down
    to the tables, so files without wanted rows are not opened. If a filter compares the key columns
    of an index with values (`WHERE id = 7`), only the rows that the index names are read. A join
    with few rows reads the other table by an index, too: of `a JOIN b ON x = y WHERE a.id = 7` the
    rows of `a` are read first, and then the rows of `b` that an index over `y` names for them.

    `EXPLAIN SELECT …` returns a row for each table of the query, `table` and `plan`: what is read
    of it. To say that, it reads the rows that come before others.

    Parameters
    ----------
    tables
        The data for names in the query: tables, scans, or any Arrow data.
    engine
        `duckdb` or `polars`. Default: the one that is installed, duckdb if both are.
    root
        The folder, or its URI, to which relative paths are relative.
    storage_options
        As for `Table`, for tables that the query names by path.
    use_index
        As for `Table.scan`.

    Raises
    ------
    InvalidInputError
        The text is not a single query, or the engine refuses it.
    NotFoundError
        A name is not one of `tables`, and there is no table at that path.
    DataFileError
        A file of a table is damaged or missing. Other errors as for `Table.scan`.
    UnsupportedFeatureError
        Neither engine is installed.

    Examples
    --------
    >>> txlog.sql("SELECT carrier, avg(delay) AS d FROM flights GROUP BY carrier")  # doctest: +SKIP
    """
    require_flags(use_index=use_index)
    if not isinstance(query, str):
        raise InvalidTypeError(
            argument="query",
            reason=f"it must be a text of SQL, not {type(query).__name__}",
            remedy="Write the query as a text",
        )
    chosen = _engine(engine)
    given = {} if tables is None else tables
    explained = _behind("EXPLAIN", query)
    if explained is not None and _behind("ANALYZE", explained) is not None:
        raise InvalidInputError(
            argument="query",
            reason="EXPLAIN ANALYZE runs a query to measure it, which is not possible here",
            remedy="Write EXPLAIN SELECT …",
        )
    parsed = _parse(query if explained is None else explained)
    describes = _select_described(parsed)
    if chosen == "polars":
        _refuse_functions(parsed)
    relations: dict[str, Any] = {}
    labels: list[str] = []
    prefix = _unused_prefix(query)
    references = list(_references(parsed, str.lower if chosen == "duckdb" else str))
    _shorten(parsed, references)
    for reference in references:
        name = f"{prefix}{len(relations)}"
        relations[name] = _relation(reference, given, os.fspath(root), storage_options, use_index)
        labels.append(reference.sql(dialect="duckdb"))
        _rename(reference, name)
    # Of such a query sqlglot does not know which part sees which columns.
    read = narrow(parsed, relations) if use_index and not describes else {}
    if explained is not None:
        plans = [read.get(name, _AS_IT_IS) for name in relations]
        schema = pa.schema([("table", pa.string()), ("plan", pa.string())])
        return pa.table([labels, plans], schema=schema)
    text = parsed.sql(dialect="duckdb")
    return (_by_duckdb if chosen == "duckdb" else _by_polars)(text, relations)


def _engine(engine: str | None) -> str:
    if engine not in (None, "duckdb", "polars"):
        raise InvalidInputError(
            argument="engine", reason=f"{engine!r} is not duckdb or polars", remedy="Choose one"
        )
    for name in ("duckdb", "polars") if engine is None else (engine,):
        if find_spec(name) is not None:
            return name
    raise UnsupportedFeatureError(
        features=(engine or "sql",),
        reason=f"the query needs {engine or 'duckdb or polars'}, which is not installed",
        remedy=f"Install it: pip install {engine or 'duckdb'}",
    )


def _behind(word: str, query: str) -> str | None:
    """Return the rest of a query that begins with a word. Else return None.

    Comments may stand before the word.
    """
    import sqlglot

    first: list[Any] = []
    with suppress(sqlglot.errors.SqlglotError):  # To parse it raises the error, too.
        first = sqlglot.tokenize(query, dialect="duckdb")[:1]
    # The text of a quoted word would lack the quotes.
    if not first or query[first[0].start : first[0].end + 1].upper() != word:
        return None
    return query[first[0].end + 1 :]


def _select_described(parsed: exp.Query) -> bool:
    """Let `SUMMARIZE` and `DESCRIBE` describe `SELECT * FROM` a table: they give it no name.

    Return whether the query has one of them.
    """
    from sqlglot import exp

    found = list(parsed.find_all(exp.Summarize, exp.Describe))
    for described in found:
        table = described.this
        if isinstance(table, exp.Literal) and table.is_string:
            table = exp.Table(this=exp.to_identifier(table.name, quoted=True))
        if isinstance(table, exp.Table):
            described.set("this", exp.select("*").from_(table))
            for word in ("kind", "table"):  # DESCRIBE TABLE a, SUMMARIZE TABLE a.
                described.set(word, None)
    return bool(found)


def _parse(query: str) -> exp.Query:
    import sqlglot
    from sqlglot import exp

    try:
        parsed = [one for one in sqlglot.parse(query, dialect=_dialect()) if one is not None]
    except sqlglot.errors.SqlglotError as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInputError(argument="query", reason=f"it is not SQL: {reason}") from error
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Query):
        raise InvalidInputError(
            argument="query",
            reason="one SELECT was expected",
            remedy="Tables are changed by their own methods: append, update, delete, merge",
        )
    return parsed[0]


@cache
def _dialect() -> Any:
    """Return the SQL of duckdb, with `VERSION AS OF` and `TIMESTAMP AS OF` after tables.

    Newer versions of sqlglot know both; for older ones the keywords are added.
    """
    from sqlglot import dialects, tokens

    kinds: Any = tokens.TokenType  # type: ignore[attr-defined]
    if not hasattr(kinds, "VERSION_SNAPSHOT"):
        return "duckdb"
    base: Any = dialects.DuckDB
    words = {
        **base.Tokenizer.KEYWORDS,
        "VERSION AS OF": kinds.VERSION_SNAPSHOT,
        "TIMESTAMP AS OF": kinds.TIMESTAMP_SNAPSHOT,
    }
    tokenizer = type("Tokenizer", (base.Tokenizer,), {"KEYWORDS": words})
    return type("TimeTravel", (base,), {"Tokenizer": tokenizer})


def _unused_prefix(query: str) -> str:
    """Return how the names of relations begin, so that a query has none of these names itself."""
    prefix = "txlog_"
    while prefix in query.lower():
        prefix += "_"
    return prefix


def _references(parsed: exp.Query, fold: Callable[[str], str]) -> list[exp.Table]:
    """Return the references to tables in a query, without names that the query defines (`WITH`).

    Each is in the list once. The scopes of sqlglot are not used for this: a lateral one has the
    tables beside it again, and takes a table inside it for one of these if the names are the same.

    Parameters
    ----------
    fold
        Gives names that the engine does not tell apart the same text.
    """
    from sqlglot import exp

    return [
        table
        for table in parsed.find_all(exp.Table, bfs=False)
        if isinstance(table.this, exp.Identifier) and not _is_defined(table, fold)
    ]


def _is_defined(table: exp.Table, fold: Callable[[str], str]) -> bool:
    """Return whether a `WITH` that is valid where a name is defines it."""
    from sqlglot import exp

    name = fold(table.name)
    inside: set[int] = set()  # The nodes around the name.
    node: exp.Expr | None = None if table.db else table
    while node is not None:
        clause: Any = node.args.get("with_")
        for one in () if clause is None else clause.expressions:
            is_own = id(one) in inside
            if fold(one.alias) == name:
                recurs = clause.recursive and isinstance(one.this, exp.Union)
                # A query of WITH knows itself only if it is recursive, and not in its first part.
                if not is_own or (recurs and id(one.this.this) not in inside):
                    return True
            if is_own:
                break  # It does not know the queries behind it.
        inside.add(id(node))
        node = node.parent
    return False


def _refuse_functions(parsed: exp.Query) -> None:
    """Refuse functions that read other files. (For duckdb, its configuration refuses them.)"""
    from sqlglot import exp

    for source in parsed.find_all(exp.Table):
        if not isinstance(source.this, exp.Identifier):
            raise InvalidInputError(
                argument="query",
                reason=f"{source.sql(dialect='duckdb')} is not a table that polars can read",
                remedy="Read other files into Arrow, and pass them as tables",
            )


def _shorten(parsed: exp.Query, references: Sequence[exp.Table]) -> None:
    """Let columns with the whole name of a table have its last part, which `_rename` leaves.

    Raises
    ------
    InvalidInputError
        Another relation that the column sees has the same last part.
    """
    from sqlglot import exp

    relations = (exp.Table, exp.Subquery, exp.Lateral, exp.Unnest, exp.Values)
    for column in list(parsed.find_all(exp.Column)):
        whole = _folded(column.parts[:-1])
        seen: list[str] = []
        select = column.parent_select if len(whole) > 1 else None
        while select is not None:
            inner = [one for one in select.find_all(*relations) if one.parent_select is select]
            seen += [one.alias_or_name.lower() for one in inner]
            if any(
                one.parent_select is select and not one.alias and _folded(one.parts) == whole
                for one in references
            ):
                break
            select = select.parent_select
        if select is None:
            continue
        if seen.count(whole[-1]) > 1:
            raise InvalidInputError(
                argument="query",
                reason=f"{column.sql(dialect='duckdb')} may be in several tables, which are all "
                f"called {column.parts[-2].name} here",
                remedy="Give each of these tables a name of its own by AS",
            )
        column.set("db", None)
        column.set("catalog", None)


def _folded(parts: Sequence[Any]) -> list[str]:
    return [part.name.lower() for part in parts]


def _rename(reference: exp.Table, name: str) -> None:
    """Replace a table's name in a query; its columns keep the old name as a prefix."""
    from sqlglot import exp

    if not reference.alias:
        reference.set("alias", exp.TableAlias(this=reference.this.copy()))
    for part in ("db", "catalog", "version"):
        reference.set(part, None)
    reference.set("this", exp.to_identifier(name))


def _is_data(value: object) -> bool:
    return isinstance(value, Table) or hasattr(value, "__arrow_c_stream__")


def _relation(
    reference: exp.Table,
    tables: Mapping[str, Any],
    root: str,
    options: Mapping[str, Any] | None,
    use_index: bool,
) -> Any:
    """Return the table for a name in a query, in a form that both engines can read."""
    parts = [part.name for part in reference.parts]
    moment = _moment(reference)
    value = tables.get(".".join(parts))
    if isinstance(value, Table):
        value = value.at(**moment) if moment else value
        return value.to_pyarrow_dataset(use_index=use_index)
    if _is_data(value):
        if moment:
            raise InvalidInputError(
                argument="query",
                reason=f"{'.'.join(parts)} is data, and only a table has other versions",
                remedy="Omit the version, or pass the table",
            )
        return pa.table(value)
    if value is not None:
        raise InvalidTypeError(
            argument="tables",
            reason=f"{'.'.join(parts)!r} is a {type(value).__name__}, which is no table and no "
            "Arrow data",
            remedy="Pass a txlog.Table or Arrow data, or write the path of a table in the query",
        )
    path = "/".join(parts)
    is_whole = "://" in path or path.startswith(_SCHEMES) or not root
    uri = path if is_whole else f"{root.rstrip('/')}/{path}"
    try:
        return Table(uri, storage_options=options, **moment).to_pyarrow_dataset(use_index=use_index)
    except NotFoundError as error:
        if moment and Table.exists(uri, options):
            raise
        raise NotFoundError(
            path=uri,
            reason=f"the query names {'.'.join(parts)!r}, but there is no such table",
            remedy="Write a path in quotes (FROM 'folder/table'), or pass the table: "
            f"tables={{{'.'.join(parts)!r}: …}}",
        ) from error


def _moment(reference: exp.Table) -> dict[str, Any]:
    """Return the version or the timestamp of a reference, as arguments of `Table`."""
    from sqlglot import exp

    version, alias = reference.args.get("version"), reference.args.get("alias")
    if alias is not None and isinstance(alias.this, exp.Placeholder):  # As duckdb's SQL has it.
        raise InvalidInputError(
            argument="query",
            reason=f"@{alias.name} behind {reference.name} is not a version here",
            remedy=_MOMENTS,
        )
    if version is None:
        return {}
    is_time = version.name.upper() == "TIMESTAMP"
    value = version.expression.unnest() if version.expression is not None else None
    if (
        is_time
        and isinstance(value, exp.Cast)
        and value.to.is_type("date", "timestamp", "timestamptz", "timestampntz")
    ):
        value = value.this  # TIMESTAMP '…'
    if version.args.get("kind") == "AS OF" and isinstance(value, exp.Literal):
        if is_time and value.is_string:
            return {"timestamp": value.name}
        if not is_time and (value.is_string or value.name.isdecimal()):
            return {"version": value.name if value.is_string else int(value.name)}
    text = version.sql(dialect="duckdb").removeprefix("FOR ")
    raise InvalidInputError(
        argument="query",
        reason=f"{text} does not name a version by a constant",
        remedy=_MOMENTS,
    )


def _by_duckdb(text: str, relations: Mapping[str, Any]) -> pa.Table:
    import duckdb

    # The query may read only the tables that it names, and no other files. Each call has a database
    # of its own: functions such as `enable_logging` change the whole database, and a forked process
    # ends badly if it got one.
    config: dict[str, Any] = {
        "python_enable_replacements": "false",
        "enable_external_access": "false",
        "lock_configuration": "true",
    }
    with duckdb.connect(config=config) as connection:
        for name, relation in relations.items():
            connection.register(name, relation)
        try:
            return connection.sql(text).to_arrow_table()
        except duckdb.Error as error:
            raise _why(relations, error) or _refused("duckdb", error) from error


def _by_polars(text: str, relations: Mapping[str, Any]) -> pa.Table:
    import polars as pl

    frames: dict[str, Any] = {
        name: pl.DataFrame(relation).lazy()
        if isinstance(relation, pa.Table)
        else pl.scan_pyarrow_dataset(relation)
        for name, relation in relations.items()
    }
    try:
        with pl.SQLContext(frames) as context:
            return context.execute(text, eager=True).to_arrow()
    except (pl.exceptions.PolarsError, pa.ArrowException, OSError) as error:
        raise _why(relations, error) or _refused("polars", error) from error


def _why(relations: Mapping[str, Any], error: Exception) -> TxlogError | None:
    """Return the error of reading a table behind that of an engine; None: the query is at fault."""
    tables = [one for one in relations.values() if isinstance(one, TableDataset)]
    for table in tables:
        if table.fault is not None:
            return table.fault
    # Files that pyarrow reads alone: its errors do not name them, and duckdb passes on the text.
    if isinstance(error, OSError | pa.ArrowException) or "reading the stream" in str(error):
        try:
            for table in tables:
                table.require_readable()
        except TxlogError as fault:
            return fault
    return None


def _refused(engine: str, error: Exception) -> InvalidInputError:
    reason = str(error).strip().partition("\n")[0]
    return InvalidInputError(argument="query", reason=f"{engine} refuses it: {reason}")


def load_ipython_extension(shell: Any) -> None:
    """Add the magic `%%txlog` to a notebook. `%load_ext txlog` calls this function.

    `%%txlog [-o NAME] [--engine duckdb|polars]` above the SQL of a cell shows the result of `sql`,
    or assigns it to a variable. Names in the query are variables of the notebook, or paths.
    """
    magic = partial(_run_cell, shell)
    magic.__doc__ = load_ipython_extension.__doc__
    shell.register_magic_function(magic, "line_cell", "txlog")


def _run_cell(shell: Any, line: str, cell: str | None = None) -> Any:
    from getopt import GetoptError, gnu_getopt

    from IPython.core.error import UsageError

    options: dict[str, Any] = {}
    if cell is not None:
        try:
            pairs, rest = gnu_getopt(line.split(), "o:", ["engine="])
        except GetoptError as error:
            raise UsageError(f"%%txlog: {error}") from error
        if rest:
            raise UsageError(f"%%txlog takes -o NAME and --engine NAME, not {rest[0]!r}")
        options = dict(pairs)
    # Other variables may have the names of folders.
    data = {name: value for name, value in shell.user_ns.items() if _is_data(value)}
    found = sql(line if cell is None else cell, data, engine=options.get("--engine"))
    frame = _as_frame(found)
    if "-o" not in options:
        return frame
    shell.user_ns[options["-o"]] = frame
    return None


def _as_frame(rows: pa.Table) -> Any:
    """Return rows in a form that notebooks show well: a frame of polars or pandas, if installed."""
    if find_spec("polars") is not None:
        import polars as pl

        return pl.from_arrow(rows)
    return rows.to_pandas() if find_spec("pandas") is not None else rows
