"""Parts of a table: its rows for training, validation and tests, and columns by patterns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from math import isclose

import pyarrow as pa

from txlog import Table
from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.extend import Where, required_expression

_BUCKETS = 1_000_000


def split_where(part: str, shares: Mapping[str, float], key: str | Sequence[str]) -> str:
    """Return the predicate for the rows of one part of a table, as SQL for `where`.

    A row belongs to a part by the hash of its key alone, so it never changes its part: not when
    rows are appended, when files are compacted, or when a whole number becomes a longer type. Rows
    with one key are in one part. If you divide a part further, the parts before it stay.

    Parameters
    ----------
    part
        One of the names in `shares`.
    shares
        The names of the parts with their shares, which sum up to 1. Their order counts.
    key
        The column that identifies an example, or several columns. Use whole numbers or texts.

    Raises
    ------
    InvalidInputError
        There is no such part, or the shares are not positive numbers with the sum 1.

    Examples
    --------
    >>> split_where("val", {"train": 0.8, "val": 0.1, "test": 0.1}, "id")
    'pmod(xxhash64(CAST(`id` AS STRING)), 1000000) BETWEEN 800000 AND 899999'
    """
    keys = [key] if isinstance(key, str) else list(key) if isinstance(key, Sequence) else []
    if not keys or not all(isinstance(one, str) and one for one in keys):
        raise InvalidTypeError(argument="key", reason="the name of a column was expected")
    first, end = _buckets(part, shares)
    texts = ", ".join(f"CAST(`{one.replace('`', '``')}` AS STRING)" for one in keys)
    return f"pmod(xxhash64({texts}), {_BUCKETS}) BETWEEN {first} AND {end - 1}"


def part_where(
    split: Mapping[str, float] | None, part: str | None, key: str | Sequence[str] | None
) -> str | None:
    """Return the predicate of `split_where`; None without a split.

    Raises
    ------
    InvalidInputError
        As for `split_where`; or some of `split`, `part` and `key` are missing.
    """
    given = {"split": split, "part": part, "key": key}
    lacking = [name for name, value in given.items() if value is None]
    if len(lacking) == len(given):
        return None
    if split is None or part is None or key is None:
        raise InvalidInputError(
            argument=lacking[0],
            reason="split, part and key are given together",
            remedy='Write split={"train": 0.8, "val": 0.2}, part="train", key="id"',
        )
    try:
        return split_where(part, split, key)
    except InvalidInputError as error:
        error.argument = "split" if error.argument == "shares" else error.argument
        raise


def of_part(
    table: Table,
    where: Where,
    split: Mapping[str, float] | None,
    part: str | None,
    key: str | Sequence[str] | None,
) -> Where:
    """Return the predicate for the rows of `where` in one part of a split; errors as above."""
    found = part_where(split, part, key)
    if found is None:
        return where
    try:
        table.scan([key] if isinstance(key, str) else list(key or ()))
    except InvalidInputError as error:
        error.argument = "key"
        raise
    if where is None:
        return found
    scan = table.scan([], where)  # In the time zone of the table.
    return required_expression(scan.plan.reading.where, argument="where") & required_expression(
        found, argument="key"
    )


def matching_names(table: Table, columns: list[str] | None) -> list[str] | None:
    """Return the names of columns, where patterns with `*`, `?` or `[…]` stand for several.

    A pattern with a dot is one of fields of structs. A column whose name is the pattern is this
    column.

    Raises
    ------
    InvalidInputError
        A pattern has no column.
    """
    if not isinstance(columns, list) or not any(map(_is_pattern, columns)):
        return columns
    schema = table.scan().schema
    known = list(_names(schema))
    found: dict[str, None] = {}
    for name in columns:
        if not _is_pattern(name) or name in known:
            found[name] = None
            continue
        depth = name.count(".")
        some = [one for one in known if one.count(".") == depth and fnmatchcase(one, name)]
        if not some:
            raise InvalidInputError(
                argument="columns",
                field=name,
                reason="no column has a name like this",
                remedy=f"Choose from {', '.join(schema.names)}",
            )
        found |= dict.fromkeys(some)
    return list(found)


def _is_pattern(name: object) -> bool:
    return isinstance(name, str) and any(sign in name for sign in "*?[")


def _names(fields: pa.Schema | pa.StructType, before: str = "") -> Iterator[str]:
    """Yield the names of columns, and the dotted ones of fields of structs."""
    for field in fields:
        yield before + field.name
        if pa.types.is_struct(field.type):
            yield from _names(field.type, f"{before}{field.name}.")


def _buckets(part: str, shares: Mapping[str, float]) -> tuple[int, int]:
    """Return the first bucket of a part, and the one after its last."""
    if not isinstance(shares, Mapping) or not all(
        isinstance(share, int | float) and not isinstance(share, bool) for share in shares.values()
    ):
        raise InvalidTypeError(
            argument="shares",
            reason="names with numbers were expected",
            remedy='Write {"train": 0.8, "val": 0.1, "test": 0.1}',
        )
    if part not in shares:
        raise InvalidInputError(
            argument="part",
            reason=f"there is no part {part!r}",
            remedy=f"Choose from {', '.join(map(str, shares))}",
        )
    if not isclose(sum(shares.values()), 1, abs_tol=1e-9):
        raise InvalidInputError(
            argument="shares", reason=f"their sum is {sum(shares.values())}, 1 was expected"
        )
    total, found = 0.0, (0, 0)
    for name, share in shares.items():
        first, end = round(total * _BUCKETS), round((total + share) * _BUCKETS)
        if not first < end:
            raise InvalidInputError(
                argument="shares",
                field=str(name),
                reason=f"{share} is no share: a number above 0 was expected",
            )
        if name == part:
            found = first, end
        total += share
    return found
