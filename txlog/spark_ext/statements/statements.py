"""`spark_ext.sql`: SQL statements that Spark does not support for tables of a Python source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txlog.base.effects import REAL
from txlog.base.errors import InvalidInputError, TxlogError, require_mappings
from txlog.base.remedies import in_sql
from txlog.commit.operation import Outcome
from txlog.expressions.tree import And, Column, Comparison, Expression, Literal, quote_name
from txlog.schema.types import StructType, columns_named
from txlog.spark_ext.catalog import split_name, table_location
from txlog.spark_ext.delta.arguments import checks_retention
from txlog.spark_ext.delta.delta_table import DeltaTable
from txlog.spark_ext.delta.frames import as_frame
from txlog.spark_ext.delta.merge_builder import DeltaMergeBuilder
from txlog.spark_ext.names import options_in
from txlog.spark_ext.reads.predicates import constant_column
from txlog.spark_ext.spark_types import read_schema
from txlog.spark_ext.statements.alterations import Alterations
from txlog.spark_ext.statements.defaults import (
    Rows,
    assigned_defaults,
    given_names,
    lacks_default,
    misplaced_default,
    read_rows,
    without_defaults,
)
from txlog.spark_ext.statements.definitions import Definitions
from txlog.spark_ext.statements.descriptions import Descriptions
from txlog.spark_ext.statements.ground import QUERIES, NotOursError
from txlog.spark_ext.statements.partitions import partition_of
from txlog.spark_ext.statements.queries import Queries, last_part, own_alias
from txlog.spark_ext.statements.statement_text import (
    Reader,
    references,
    tokens_of,
)
from txlog.spark_ext.writes.own_reads import reads_latest, version_read
from txlog.spark_ext.writes.write_frame import named_by_place, stored, write
from txlog.spark_ext.writes.write_tasks import SESSION_PARTITION_MODE
from txlog.spark_ext.zones import zone_of
from txlog.store.places import same_place
from txlog.table.seam import context_of
from txlog.verbs.merge.clauses import Clause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txlog.store.base import Store

_WHENS = (("WHEN", "MATCHED"), ("WHEN", "NOT", "MATCHED"))
_AFFECTED = pa.schema([("num_affected_rows", pa.int64())])
_FILES = pa.schema([("path", pa.string())])


def sql(
    spark: SparkSession, text: str, *, storage_options: Mapping[str, Any] | None = None
) -> DataFrame:
    """Run an SQL statement in Delta Lake's syntax; Spark runs every statement that it supports.

    Tables are ``delta.`/path` ``, ``txlog.`/path` `` or names in Spark's catalog. This function
    runs queries of these tables, also of older versions and of `table_changes`; changes of rows
    (`INSERT`, `MERGE`, `UPDATE`, `DELETE`, `TRUNCATE`), also after `WITH`; definitions (`CREATE`
    and `REPLACE TABLE`, `CLONE`, `LIKE`, `CONVERT TO DELTA`, `ALTER TABLE`, `COMMENT ON`);
    descriptions (`DESCRIBE`, `SHOW`); and maintenance (`OPTIMIZE`, `REORG`, `VACUUM`, `RESTORE`,
    `GENERATE`). docs/sql.md shows each of them with its result. A statement is understood wholly
    before anything is committed, and Spark gets its expressions as written. All other statements,
    and statements about tables of other formats, go to `spark.sql`; their queries may name these
    tables, too.

    Parameters
    ----------
    storage_options
        Options of the stores of the tables in the statement.

    Returns
    -------
    The frame that Delta Lake returns for the statement: for changes, the number of affected rows.

    Raises
    ------
    InvalidInputError
        One of these statements is malformed.
    NotFoundError
        There is no table at a path, or no such version.
    """
    require_mappings(storage_options=storage_options)
    from sqlglot.errors import SqlglotError

    try:
        tokens = tokens_of(text)
    except SqlglotError:
        return spark.sql(text)
    run = _Statement(spark, Reader(text, tokens), options_in(spark, storage_options), text)
    try:
        found = run.result()
        run._show()
        return found
    except NotOursError:
        return run._by_spark()
    except TxlogError as error:
        error.remedy = in_sql(error.remedy, error.table)
        if isinstance(error, InvalidInputError) and not _is_given(error.argument):
            error.argument = "text"  # Which argument of which call it became, callers do not see.
        raise


def _is_given(argument: str | None) -> bool:
    """Return whether callers see an argument: they pass it, or set it in the session."""
    return argument is not None and (argument == "storage_options" or argument.startswith("spark."))


@dataclass
class _Insertion:
    """One INSERT of a statement, before it is written."""

    place: str  # The URI of its table.
    store: Store
    rows: DataFrame
    overwrites: bool
    write: Callable[[], Outcome]


@dataclass
class _Statement(Queries, Definitions, Alterations, Descriptions):
    """One statement. Each method runs one kind of statement, after its first words."""

    begins_with_from: bool = False  # FROM t INSERT …

    def result(self) -> DataFrame:
        reader = self.reader
        self.defined = reader.skips_with()
        if reader.sees("FROM") and any(reader.finds("INSERT", w) for w in ("INTO", "OVERWRITE")):
            self.before = self.text[: reader.passed]  # FROM t INSERT INTO u SELECT …
            self.begins_with_from = True
        elif any(reader.sees(word) for word in ("INSERT", "MERGE", "UPDATE", "DELETE")):
            self.before = self.text[: reader.passed] if self.defined else ""
        elif self.defined or any(reader.sees(word) for word in QUERIES):
            return self._query(self.text)
        kinds: list[tuple[tuple[str, ...], Callable[[], DataFrame]]] = [
            (("MERGE",), self._merge),
            (("UPDATE",), self._update),
            (("DELETE", "FROM"), self._delete),
            (("INSERT",), self._insert),
            (("OPTIMIZE",), self._optimize),
            (("REORG", "TABLE"), self._reorg),
            (("TRUNCATE", "TABLE"), self._truncate),
            (("VACUUM",), self._vacuum),
            (("ANALYZE", "TABLE"), self._analyze),
            (("RESTORE",), self._restore),
            (("GENERATE",), self._generate),
            (("DESCRIBE", "HISTORY"), self._history),
            (("DESC", "HISTORY"), self._history),
            (("DESCRIBE", "DETAIL"), self._detail),
            (("DESC", "DETAIL"), self._detail),
            (("ALTER", "TABLE"), self._alter),
            (("CREATE",), self._create),
            (("REPLACE", "TABLE"), self._replace),
            (("DROP", "TABLE"), self._drop),
            (("COMMENT", "ON"), self._comment_on),
            (("CONVERT", "TO", "DELTA"), self._convert),
            (("SHOW", "TBLPROPERTIES"), self._shown_properties),
            (("SHOW", "COLUMNS"), self._columns),
            (("SHOW", "TABLE", "EXTENDED"), self._tables),
            (("SHOW", "PARTITIONS"), self._partitions),
            (("SHOW", "CREATE", "TABLE"), self._creation),
            (("DESCRIBE",), self._describe),
            (("DESC",), self._describe),
        ]
        for words, run in kinds:
            if reader.accepts(*words):
                return run()
        raise NotOursError

    # Tables.

    def _target(self, *followers: str) -> DeltaTable:
        """Return the next table, under its alias or the last part of its name."""
        name = self.reader.name()
        opened = self._changed(name)
        alias = self.reader.alias(*followers) or last_part(name)
        return DeltaTable(self.spark, opened, alias)

    def _table(self, *, is_of_spark: bool = False) -> DeltaTable:
        """Return the next table; an error says why it is none, unless Spark has the statement."""
        name = self.reader.table()
        try:
            opened = self._opened(name)
        except NotOursError:
            if not is_of_spark:
                table_location(self.spark, name)  # It raises.
            raise
        return DeltaTable(self.spark, opened)

    # Changes of rows.

    def _merge(self) -> DataFrame:
        reader = self.reader
        evolves = reader.accepts("WITH", "SCHEMA", "EVOLUTION")
        reader.expect("INTO")
        target = self._target("USING")
        reader.expect("USING")
        relation = reader.relation("ON")
        source = self._query(f"{self.before} SELECT * FROM {relation.text}")
        alias = relation.alias
        if alias is None and not relation.text.startswith("("):
            alias = last_part(relation.text)
        if alias is not None:
            source = source.alias(alias)
        reader.expect("ON")
        condition = reader.until(*_WHENS)
        builder = target.merge(source, condition)
        clauses = []
        while reader.accepts("WHEN"):
            clauses.append(_merge_clause(reader))
        reader.end()
        texts = [condition]
        for clause in clauses:
            texts += [clause.predicate or "", *(clause.updates or {}).values()]
        self._refuse_tables(texts, "the expressions of MERGE")
        schema = target.table.snapshot.schema
        clauses = [_with_defaults(clause, schema, target._alias) for clause in clauses]
        return _with_clauses(builder, clauses, evolves=evolves).execute()

    def _update(self) -> DataFrame:
        target = self._target("SET")
        self.reader.expect("SET")
        updates = _assignments(self.reader, ("WHERE",))
        self._refuse_tables(updates.values(), "the values of UPDATE")
        schema = target.table.snapshot.schema
        updates = assigned_defaults(updates, schema, target._alias, inserts=False)
        with self._condition() as where:
            return self._affected(target._update(where, updates), "numUpdatedRows")

    def _delete(self) -> DataFrame:
        target = self._target("WHERE")
        with self._condition() as where:
            return self._affected(target._delete(where), "numDeletedRows")

    def _refuse_tables(self, texts: Iterable[str], place: str) -> None:
        """Raise if expressions have queries of tables, which Spark cannot read by name there."""
        for text in texts:
            if "select" not in text.lower():
                continue
            if any(
                one.name.lower() in self.defined or self._place(one.name)
                for one in references(text)
            ):
                raise InvalidInputError(
                    argument="text",
                    reason=f"queries of tables are not supported in {place}",
                    remedy="Join the table in a source of MERGE",
                )

    @contextmanager
    def _condition(self) -> Iterator[str | None]:
        """Yield the condition after WHERE. In the block, views replace its tables."""
        text = self.reader.until() if self.reader.accepts("WHERE") else None
        self.reader.end()
        pieces, views, done = list[str](), list[str](), 0
        try:
            for one in references(text or ""):
                frame = (
                    self._query(f"{self.before} SELECT * FROM {one.name}")
                    if one.name.lower() in self.defined
                    else self._frame(one)
                )
                if frame is not None:
                    views.append(f"txlog_{REAL.uuid().replace('-', '')}")
                    frame.createOrReplaceTempView(views[-1])
                    pieces += [(text or "")[done : one.start], views[-1], own_alias(one)]
                    done = one.end
            yield None if text is None else "".join([*pieces, text[done:]])
        finally:
            for view in views:
                self.spark.catalog.dropTempView(view)

    def _affected(self, outcome: Outcome, metric: str) -> DataFrame:
        row = {"num_affected_rows": outcome.metrics.get(metric, 0)}
        return as_frame(self.spark, [row], _AFFECTED)

    def _insert(self) -> DataFrame:
        """Insert the rows of a query, which may begin before INSERT with WITH or FROM.

        After FROM there may be several INSERT, each with its own SELECT.
        """
        writes = [self._insertion()]
        while self.begins_with_from and self.reader.accepts("INSERT"):
            writes.append(self._insertion())
        self.reader.end()
        _require_independent(writes)
        done: list[str] = []
        for one in writes:
            try:
                outcome = one.write()
            except TxlogError as error:
                if done:
                    _tell(error, done)
                raise
            done.append(f"delta.`{one.place}` (version {outcome.version})")
        return self._nothing()

    def _insertion(self) -> _Insertion:
        """Read the table and the query of one INSERT."""
        reader = self.reader
        overwrites = reader.accepts("OVERWRITE")
        if not overwrites:
            reader.expect("INTO")
        reader.accepts("TABLE")
        opened = self._changed(reader.name())
        fixed: dict[str, Literal | None] = {}
        if reader.accepts("PARTITION"):
            fixed = partition_of(reader, opened.snapshot, zone_of(self.spark))
            if reader.sees("REPLACE", "WHERE") or reader.sees("IF", "NOT", "EXISTS"):
                raise reader.unexpected("a query")
        where: str | Expression | None = None
        if reader.accepts("REPLACE", "WHERE"):
            overwrites, where = True, reader.until(("SELECT",), ("VALUES",), ("TABLE",), ("WITH",))
        by_name = reader.accepts("BY", "NAME")
        names = [name for name in opened.schema.names if fixed.get(name) is None]
        if not by_name and reader.sees("(") and not _is_query(reader):
            asked = [split_name(name)[0] for name in reader.items()]
            columns = columns_named(opened.snapshot.schema, asked, argument="text")
            names = [column.name for column in columns]
        others = (("INSERT", "INTO"), ("INSERT", "OVERWRITE")) if self.begins_with_from else ()
        text = reader.until(*others)
        rows, given_rows = self._given_rows(text, by_name=by_name)
        if not by_name:
            width = len(rows.columns) - len(given_rows.some)
            if width != len(names):
                raise InvalidInputError(
                    argument="text",
                    reason=f"{len(names)} values are inserted, and the query has {width} columns",
                    remedy="Name the columns that get values, in parentheses after the table",
                )
            rows = rows.toDF(*given_names(names, given_rows))
        given = {name: value for name, value in fixed.items() if value is not None}
        twice = [name for name in rows.columns if name.lower() in {one.lower() for one in given}]
        if twice:
            raise InvalidInputError(
                argument="text",
                field=twice[0],
                reason=f"{twice[0]} has a value in PARTITION, and the query gives one too",
                remedy="Give it in one of the two places",
            )
        for name, value in given.items():
            rows = rows.withColumn(name, constant_column(value))
        rows = _as_stored(rows, opened.snapshot.schema, by_place=not by_name)
        rows = without_defaults(rows, given_rows, opened.snapshot.schema)
        dynamic = (self.spark.conf.get(SESSION_PARTITION_MODE, None) or "").lower() == "dynamic"
        if overwrites and given and not dynamic:
            parts = [Comparison("<=>", Column((name,)), value) for name, value in given.items()]
            where = And(tuple(parts))
        mode: Any = "overwrite" if overwrites else "append"
        store = context_of(opened).store  # A view has options of its own.
        written = partial(
            write, rows, opened.uri, mode=mode, where=where, storage_options=store.options
        )
        return _Insertion(opened.uri, store, rows, overwrites, written)

    def _given_rows(self, text: str, *, by_name: bool) -> tuple[DataFrame, Rows]:
        """Return the rows of a query, and the places at which it has the word DEFAULT.

        As for Spark, a column of this name is read where there is one.
        """
        from pyspark.errors import AnalysisException

        plain = Rows(text)
        given = plain if by_name else read_rows(text)
        if not given.is_list:
            try:
                return self._query(f"{self.before} {text}"), plain
            except AnalysisException as error:
                if given == plain and lacks_default(error, text):
                    raise misplaced_default() from error
                if given == plain:
                    raise
        return self._query(f"{self.before} {given.text}"), given

    def _truncate(self) -> DataFrame:
        target = self._table(is_of_spark=True)
        self.reader.end()
        target._delete(None)
        return self._nothing()

    # Maintenance.

    def _reorg(self) -> DataFrame:
        """Rewrite the files with deleted rows, without them."""
        target = self._table()
        predicate = self.reader.until(("APPLY",)) if self.reader.accepts("WHERE") else None
        self.reader.expect("APPLY")
        self.reader.expect("(", "PURGE", ")")
        self.reader.end()
        return target.optimize()._purged(predicate)

    def _optimize(self) -> DataFrame:
        builder = self._table().optimize()
        if self.reader.accepts("WHERE"):
            builder = builder.where(self.reader.until(("ZORDER", "BY")))
        if self.reader.accepts("ZORDER", "BY"):
            names = self.reader.names()
            self.reader.end()
            return builder.executeZOrderBy(*names)
        self.reader.end()
        return builder.executeCompaction()

    def _analyze(self) -> DataFrame:
        """Add statistics that files lack, after ANALYZE TABLE. Spark's catalog keeps none."""
        reader = self.reader
        opened = self._opened(reader.table()).refresh()
        where: Expression | None = None
        if reader.accepts("PARTITION"):
            given = partition_of(reader, opened.snapshot, zone_of(self.spark))
            parts = [
                Comparison("<=>", Column((name,)), value)
                for name, value in given.items()
                if value is not None
            ]
            where = And(tuple(parts)) if parts[1:] else next(iter(parts), None)
        reader.expect("COMPUTE")
        reader.accepts("DELTA")
        reader.expect("STATISTICS")
        columns: list[str] | None = None
        only_counts = reader.accepts("NOSCAN")
        if not only_counts and not reader.accepts("FOR", "ALL", "COLUMNS"):
            columns = reader.names() if reader.accepts("FOR", "COLUMNS") else None
        reader.end()
        if not only_counts:  # The log has the sizes of all files.
            opened.optimize.compute_statistics(columns, where=where)
        return self._nothing()

    def _vacuum(self) -> DataFrame:
        reader = self.reader
        target = self._table()
        hours: float | None = None
        lists = lite = False
        while reader.token is not None:
            if reader.accepts("RETAIN"):
                hours = reader.number()
                reader.expect("HOURS")
            elif reader.accepts("DRY", "RUN"):
                lists = True
            elif reader.accepts("LITE"):
                lite = True
            elif not reader.accepts("FULL"):
                raise reader.unexpected("RETAIN … HOURS, DRY RUN, LITE or FULL")
        checked = checks_retention(self.spark)
        found = target.table.refresh().vacuum(
            hours, dry_run=lists, enforce_retention_duration=checked, lite=lite
        )
        paths = [target.table.uri]
        if lists:
            going = found.filter(pa.compute.equal(found["decision"], "delete"))
            paths = going["file"].to_pylist()
        return as_frame(self.spark, [{"path": path} for path in paths], _FILES)

    def _generate(self) -> DataFrame:
        mode = self.reader.name()
        self.reader.expect("FOR", "TABLE")
        target = self._table()
        self.reader.end()
        target.generate(mode)
        return self._nothing()

    def _restore(self) -> DataFrame:
        self.reader.accepts("TABLE")
        target = self._table()
        self.reader.accepts("TO")
        version, timestamp = self._moment(self.reader.moment())
        self.reader.end()
        if version is None and timestamp is None:
            raise self.reader.unexpected("VERSION AS OF or TIMESTAMP AS OF")
        return target._restored(version, timestamp)

    def _history(self) -> DataFrame:
        target = self._table()
        limit = self.reader.number() if self.reader.accepts("LIMIT") else None
        self.reader.end()
        return target.history(limit)

    def _detail(self) -> DataFrame:
        target = self._table()
        self.reader.end()
        return target.detail()


def _require_independent(writes: Sequence[_Insertion]) -> None:
    """Raise if the rows of an INSERT depend on what an earlier one of the statement writes.

    Each has the rows that there are before the statement.
    """
    for at, later in enumerate(writes):
        for earlier in writes[:at]:
            is_same = same_place(earlier.store.root, later.store.root)
            is_read = reads_latest(later.rows, earlier.store) or (
                # It replaces the rows that it has read, and the earlier one adds others.
                later.overwrites
                and is_same
                and version_read(later.rows, earlier.store, 0) is not None
            )
            if is_read:
                raise InvalidInputError(
                    argument="text",
                    reason=f"INSERT {at + 1} reads the table {earlier.place}, which an INSERT "
                    "before it changes",
                    remedy="Write them as statements of their own, in the order that is meant",
                )


def _tell(error: TxlogError, done: Sequence[str]) -> None:
    """Say in the error of an INSERT that those before it in the statement were committed."""
    error.reason = (
        f"{error.reason or error.summary}; this is INSERT {len(done) + 1} of the statement, and "
        f"those before it were committed: {', '.join(done)}"
    )
    error.remedy = error.remedy.replace("Nothing was committed", "This INSERT committed nothing")


def _with_clauses(
    builder: DeltaMergeBuilder, clauses: list[Clause], *, evolves: bool
) -> DeltaMergeBuilder:
    for clause in clauses:
        builder = builder._with_clause(clause)
    return builder.withSchemaEvolution() if evolves else builder


def _with_defaults(clause: Clause, schema: StructType, alias: str | None) -> Clause:
    """Return a clause with the defaults of columns in place of the word DEFAULT."""
    if clause.updates is None:
        return clause
    inserts = clause.action == "insert"
    updates = assigned_defaults(clause.updates, schema, alias, inserts=inserts)
    return replace(clause, updates=updates)


def _is_query(reader: Reader) -> bool:
    """Return whether the text in parentheses is a query, not a list of columns."""
    return any(reader.sees("(", word) for word in QUERIES)


def _as_stored(rows: DataFrame, schema: StructType, *, by_place: bool) -> DataFrame:
    """Return rows in the types of a table's columns; a value that cannot be cast is an error.

    With `by_place`, the fields of structs are those at the same places, whatever their names are.
    """
    wanted = {field.name.lower(): field for field in read_schema(schema).fields}
    columns = []
    for have in rows.schema.fields:
        want = wanted.get(have.name.lower())
        value, kind = rows[quote_name(have.name)], have.dataType
        if want is not None:
            if by_place:
                kind = named_by_place(kind, want.dataType, want.name)
                value = value if kind == have.dataType else value.cast(kind)
            value = stored(value, kind, want.dataType, want.name)
        columns.append(value.alias(have.name))
    return rows.select(*columns)


def _merge_clause(reader: Reader) -> Clause:
    """Return a clause of a merge, after its `WHEN`."""
    kind: Any = "not_matched" if reader.accepts("NOT") else "matched"
    reader.expect("MATCHED")
    if kind == "not_matched" and reader.accepts("BY", "SOURCE"):
        kind = "not_matched_by_source"
    elif kind == "not_matched":
        reader.accepts("BY", "TARGET")
    predicate = reader.until(("THEN",)) if reader.accepts("AND") else None
    reader.expect("THEN")
    if kind == "not_matched":
        reader.expect("INSERT")
        if reader.accepts("*"):
            return Clause(kind, "insert", predicate, None, _excepted(reader))
        names = reader.items()
        reader.expect("VALUES")
        values = reader.items()
        if len(names) != len(values):
            raise reader.unexpected(f"{len(names)} values")
        if len(set(names)) < len(names):
            raise _named_twice(next(name for name in names if names.count(name) > 1))
        return Clause(kind, "insert", predicate, dict(zip(names, values, strict=True)))
    if reader.accepts("DELETE"):
        return Clause(kind, "delete", predicate)
    reader.expect("UPDATE")
    reader.expect("SET")
    if reader.accepts("*"):
        return Clause(kind, "update", predicate, None, _excepted(reader))
    return Clause(kind, "update", predicate, _assignments(reader, *_WHENS))


def _excepted(reader: Reader) -> list[str]:
    """Return the columns after `EXCEPT`, which `*` excludes."""
    return [split_name(name)[-1] for name in reader.items()] if reader.accepts("EXCEPT") else []


def _named_twice(name: str) -> InvalidInputError:
    return InvalidInputError(
        argument="text", field=name, reason=f"column {name} gets two values", remedy="Omit one"
    )


def _assignments(reader: Reader, *stops: tuple[str, ...]) -> dict[str, str]:
    """Return columns with their new expressions."""
    found: dict[str, str] = {}
    while True:
        name = reader.name()
        if name in found:
            raise _named_twice(name)
        reader.expect("=")
        found[name] = reader.until((",",), *stops)
        if not reader.accepts(","):
            return found
