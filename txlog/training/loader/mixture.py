"""`Mixture`: rows of several loaders in proportions, in one order that ranks do not change."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from math import gcd, isfinite, lcm
from typing import Any

import numpy as np
import orjson

from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.base.threads import cached_property
from txlog.training.loader.batches import Batch, Batches, Even, whole
from txlog.training.loader.blocks import Columns, chosen, joined, unpacked
from txlog.training.loader.loader import Loader
from txlog.training.loader.order import Numbers, permutations
from txlog.training.loader.stream import Numbered, Share

_MOST_RUNS = 10_000  # Of a period: proportions are exact up to this denominator.


@dataclass(frozen=True, eq=False)
class Pattern:
    """From which loader each row of a mixture comes. Pure. Rule: LDR-16.

    Parameters
    ----------
    runs
        The number of runs of each loader in a period.
    run_rows
        The number of adjacent rows that come from one loader.
    """

    runs: tuple[int, ...]
    run_rows: int
    seed: int

    @cached_property
    def period(self) -> int:
        """The number of runs in a period."""
        return sum(self.runs)

    def sources(self, first: int, stop: int, step: int = 1) -> tuple[Numbers, Numbers]:
        """Return the loader of every `step`-th row of a range, and the row's number in it."""
        rows = np.arange(first, stop, step)
        if len(self.runs) == 1 or not len(rows):
            return np.zeros_like(rows), rows
        runs = rows // self.run_rows
        begin, end = int(runs[0]) // self.period, int(runs[-1]) // self.period + 1
        order, earlier = self._of_periods(range(begin, end))
        at = runs - begin * self.period
        places = order[at]
        numbers = earlier[at] * self.run_rows + rows % self.run_rows
        return places, numbers

    def before(self, row: int) -> list[int]:
        """Return the number of rows of each loader before a row of the mixture."""
        if len(self.runs) == 1:
            return [row]
        period, at = divmod(row // self.run_rows, self.period)
        order, _ = self._of_periods(range(period, period + 1))
        counts = np.bincount(order[:at], minlength=len(self.runs)) + np.array(self.runs) * period
        rows = counts * self.run_rows
        rows[order[at]] += row % self.run_rows
        found: list[int] = rows.tolist()
        return found

    def _of_periods(self, periods: range) -> tuple[Numbers, Numbers]:
        """Return the loader of each run of periods, and the number of its earlier runs."""
        given = np.repeat(np.arange(len(self.runs)), self.runs)
        order = given[permutations(self.period, self.seed, periods)].ravel()
        earlier = np.empty_like(order)
        for place, count in enumerate(self.runs):
            mine = np.flatnonzero(order == place)
            earlier[mine] = np.arange(len(mine)) + count * periods.start
        return order, earlier


class Mixture(Batches):
    """Batches of rows of several loaders, as many of each as its proportion says.

    Each loader goes through its own epochs in its own order; a small one begins its next epoch
    while a large one is still in its first. The order is a function of the loaders, the proportions
    and the seed, so a state is only a position, from which any number of ranks continues.

    Parameters
    ----------
    loaders
        Loaders by name, with the same columns, views, `batch_size`, `rank` and `world_size`, which
        are those of the mixture.
    proportions
        A number above 0 for each loader, in relation to the others. Default: its rows.
    epoch_rows
        The number of rows of an epoch of the mixture. Default: the rows of all loaders together.
    seed
        A whole number from 0, below 2^64, for the order of the loaders' turns.
    run_rows
        The number of adjacent rows that come from one loader. If the number of ranks divides it,
        each row is read by one rank; otherwise several may read it, and one returns it.
    even
        What happens to the last rows of an epoch if they are too few for a batch of each rank:
        `drop` leaves them out, `short` returns shorter batches.
    transform, processes, epochs
        As for `Loader`. Those of the loaders, and their `even`, have no effect; a `transform` of
        theirs is refused.

    Raises
    ------
    InvalidInputError
        An argument is wrong, or loaders do not fit each other.

    Examples
    --------
    >>> web = Loader("web", batch_size=64)  # doctest: +SKIP
    >>> code = Loader("code", batch_size=64)  # doctest: +SKIP
    >>> for batch in Mixture({"web": web, "code": code}, proportions={"web": 0.7, "code": 0.3}):
    ...     train(batch)  # doctest: +SKIP
    """

    def __init__(
        self,
        loaders: Mapping[str, Loader],
        *,
        proportions: Mapping[str, float] | None = None,
        epoch_rows: int | None = None,
        seed: int = 0,
        run_rows: int = 8,
        even: Even = "drop",
        transform: Callable[[Batch], Any] | None = None,
        processes: int = 0,
        epochs: int | None = 1,
    ) -> None:
        self.loaders = dict(_alike(loaders))
        first = next(iter(self.loaders.values()))
        if even == "pad":
            raise InvalidInputError(
                argument="even",
                reason="a mixture has no end of rows that could be filled up",
                remedy="Choose 'drop' or 'short'",
            )
        super().__init__(
            batch_size=first.batch_size,
            rank=first.rank,
            world_size=first.world_size,
            even=even,
            threads=first.threads,
            transform=transform,
            processes=processes,
            epochs=epochs,
        )
        self._seed = whole("seed", seed, 0)
        if self._seed >> 64:
            raise InvalidInputError(argument="seed", reason="a number below 2^64 was expected")
        if proportions is None:
            proportions = {name: loader.num_rows for name, loader in self.loaders.items()}
        runs = _runs(self.loaders, proportions)
        self._pattern = Pattern(runs, whole("run_rows", run_rows, 1), self._seed)
        rows = sum(loader.num_rows for loader in self.loaders.values())
        self._rows = rows if epoch_rows is None else whole("epoch_rows", epoch_rows, 1)
        self.schema = first.schema
        self.views = first.views

    def __repr__(self) -> str:
        runs = ", ".join(
            f"{name} {count}/{self._pattern.period}"
            for name, count in zip(self.loaders, self._pattern.runs, strict=True)
        )
        return f"txlog.Mixture({runs}, rows={self._rows}, rank={self.rank} of {self.world_size})"

    @property
    def num_rows(self) -> int:
        """The number of rows of an epoch, for all ranks together."""
        return self._rows

    @property
    def seed(self) -> int:
        """The seed of the loaders' turns."""
        return self._seed

    @property
    def fingerprint(self) -> str:
        """The identity of this order, without seed and epoch. Rule: LDR-17."""
        pattern = self._pattern
        facts = [[loader.fingerprint, loader.seed] for loader in self.loaders.values()]
        said = [facts, list(pattern.runs), pattern.run_rows, self._rows]
        return sha256(orjson.dumps(said)).hexdigest()[:16]

    def _difference(self, fingerprint: str) -> str:  # A digest tells no more.
        return "the loaders, their order, proportions, epoch_rows or run_rows differ"

    def _seed_remedy(self, seed: int) -> str:
        return f"Make the mixture with the seed {seed}"

    def no_rows(self) -> Columns:
        """Return columns without rows, in the form of `rows`."""
        return next(iter(self.loaders.values())).no_rows()

    def rows(self, epoch: int, share: Share) -> Numbered:
        """Yield the rows of a share of an epoch, each with its number among those of the rank."""
        start = epoch * self._rows
        first, stop = start + share.first, start + share.stop
        # Rows of one loader whose numbers have one remainder belong to the same ranks.
        ranks = gcd(share.ranks, self._pattern.run_rows)
        rank = (start + share.rank) % ranks
        begins, ends = self._pattern.before(first), self._pattern.before(stop)
        step = share.ranks * share.batch_rows
        with ExitStack() as stack:
            sources = [
                stack.enter_context(closing(_Source(name, loader, begin, end, rank, ranks)))
                for (name, loader), begin, end in zip(
                    self.loaders.items(), begins, ends, strict=True
                )
            ]
            for number, begin in enumerate(range(first, stop, step)):
                offset = (start + share.rank - begin) % share.ranks
                end = min(begin + step, stop)
                places, numbers = self._pattern.sources(begin + offset, end, share.ranks)
                is_wanted = number >= share.skip and (number - share.skip) % share.stride == 0
                if not is_wanted or not len(places):
                    continue
                parts, order = [], []
                for place, source in enumerate(sources):
                    of = np.flatnonzero(places == place)
                    if len(of):
                        parts.append(source.take(numbers[of]))
                        order.append(of)
                yield number, chosen(joined(parts), np.argsort(np.concatenate(order)))


class _Source:
    """The rows of a loader, over its epochs, whose numbers have a remainder.

    Parameters
    ----------
    first, stop
        The numbers that are needed; each epoch of the loader has `num_rows` of them.
    """

    def __init__(
        self, name: str, loader: Loader, first: int, stop: int, rank: int, ranks: int
    ) -> None:
        self._name, self._ranks = name, ranks
        self._next = first + (rank - first) % ranks  # The number of the next row that is read.
        self._read = self._rows(loader, first, stop, rank)
        self._held: Columns = loader.no_rows()

    def close(self) -> None:
        """Stop reading."""
        self._read.close()

    def take(self, numbers: Numbers) -> Columns:
        """Return rows by their numbers, which are ascending and above those of earlier calls."""
        parts, held = [self._held], _length(self._held)
        while self._next <= int(numbers[-1]):
            try:
                rows = next(self._read)
            except InvalidInputError as error:
                error.reason += f", in the loader {self._name}"
                raise
            parts.append(rows)
            held += _length(rows)
            self._next += self._ranks * _length(rows)
        rows = joined([part for part in parts if _length(part)])
        first = self._next - self._ranks * held
        places = (numbers - first) // self._ranks
        self._held = chosen(rows, slice(int(places[-1]) + 1, held))
        return chosen(rows, places)

    def _rows(
        self, loader: Loader, first: int, stop: int, rank: int
    ) -> Generator[Columns, None, None]:
        """Yield the rows of one epoch of the loader after another."""
        count = loader.num_rows
        for epoch in range(first // count, -(-stop // count)):
            start = epoch * count
            share = Share(
                first=max(first - start, 0),
                stop=min(stop - start, count),
                rank=(rank - start) % self._ranks,
                ranks=self._ranks,
                batch_rows=loader.batch_size,
            )
            with closing(loader.rows(epoch, share)) as numbered:
                for _, rows in numbered:
                    yield unpacked(rows)


def _length(rows: Columns) -> int:
    return len(next(iter(rows.values())))


def _alike(loaders: Mapping[str, Loader]) -> Mapping[str, Loader]:
    """Return loaders that fit each other.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        They do not; the error names the loader.
    """
    if not isinstance(loaders, Mapping) or not all(
        isinstance(loader, Loader) for loader in loaders.values()
    ):
        raise InvalidTypeError(
            argument="loaders",
            reason="names with loaders were expected",
            remedy='Write {"web": Loader(…), "code": Loader(…)}',
        )
    if not loaders:
        raise InvalidInputError(argument="loaders", reason="at least one loader was expected")
    name, first = next(iter(loaders.items()))
    for other, loader in loaders.items():
        for fact in ("batch_size", "rank", "world_size", "schema", "views"):
            found, wanted = getattr(loader, fact), getattr(first, fact)
            if found != wanted:
                raise InvalidInputError(
                    argument="loaders",
                    field=other,
                    reason=f"its {fact} is {found}, that of {name} is {wanted}",
                    remedy="Make all loaders with the same columns, views and size of batches",
                )
        if not loader.num_rows:
            raise InvalidInputError(argument="loaders", field=other, reason="it has no rows")
        if loader.transforms:
            raise InvalidInputError(
                argument="loaders",
                field=other,
                reason="it has a transform, which would get parts of batches",
                remedy="Give the transform to the mixture",
            )
    return loaders


def _runs(loaders: Mapping[str, Loader], proportions: Mapping[str, float]) -> tuple[int, ...]:
    """Return whole numbers in the proportions of the loaders, as small as possible.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        The proportions are not numbers above 0, one for each loader.
    """
    if not isinstance(proportions, Mapping):
        raise InvalidTypeError(argument="proportions", reason="names with numbers were expected")
    for name in (*loaders, *proportions):
        value = proportions.get(name)
        if name not in loaders or value is None:
            raise InvalidInputError(
                argument="proportions",
                field=name,
                reason="one number for each loader was expected",
                remedy=f"Give one to each of {', '.join(loaders)}, and to no other",
            )
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not isfinite(value) or value <= 0:
            raise InvalidInputError(
                argument="proportions",
                field=name,
                reason=f"a number above 0 was expected, not {value!r}",
            )
    shares = [Fraction(str(proportions[name])) for name in loaders]
    shares = [share / sum(shares) for share in shares]
    period = lcm(*(share.denominator for share in shares))
    if period <= _MOST_RUNS:
        return tuple(int(share * period) for share in shares)
    rounded = tuple(max(1, round(share * _MOST_RUNS)) for share in shares)
    least = gcd(*rounded)
    return tuple(count // least for count in rounded)
