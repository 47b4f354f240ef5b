"""Parts of a table for training, validation and tests, which no later change moves. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose

from txlog.base.errors import InvalidInputError, InvalidTypeError

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
