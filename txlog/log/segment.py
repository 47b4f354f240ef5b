"""Which files of the log make a version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from txlog.errors import LogCorruptError, NotFoundError
from txlog.log.names import LogFile, commit_name


@dataclass(frozen=True, slots=True)
class Segment:
    """The files whose rows, reconciled, are one version of a table.

    `deltas` (commits and compactions) ascend without a gap from the checkpoint to `version`.
    """

    version: int
    checkpoint: tuple[LogFile, ...] = ()  # Several when it is a multi-part one.
    deltas: tuple[LogFile, ...] = ()

    @property
    def checkpoint_version(self) -> int:
        """The checkpoint's version, or -1 without one."""
        return self.checkpoint[0].version if self.checkpoint else -1


def choose_segment(
    files: Iterable[LogFile], *, version: int | None, unusable: Collection[str] = ()
) -> Segment:
    """Choose the files that make `version`, or the latest version there is.

    The newest complete checkpoint at or before the version is the base; a compaction stands for
    the commits that it covers. Pure; the order of `files` has no meaning.

    Parameters
    ----------
    files
        What was listed, of any kind.
    version
        The version wanted, or None for the latest.
    unusable
        Names of checkpoints and compactions to do without, because they are damaged.

    Raises
    ------
    NotFoundError
        There is no log, or the version is later than the latest or no longer reconstructable.
    LogCorruptError
        A commit is missing in between.
    """
    usable = [file for file in files if file.name not in unusable]
    commits = {file.version: file for file in usable if file.kind == "commit"}
    checkpoints = _complete_checkpoints(usable)
    compactions = [file for file in usable if file.kind == "compaction"]
    known = [*commits, *checkpoints]
    if not known:
        raise NotFoundError(reason="the log has neither commits nor checkpoints")
    latest = max(known)
    target = latest if version is None else version
    if not 0 <= target <= latest:
        raise NotFoundError(
            version=target,
            reason=f"the table has no such version; the latest is {latest}",
            remedy="Choose a version from Table.history()",
        )
    base = max((at for at in checkpoints if at <= target), default=-1)
    checkpoint = checkpoints.get(base, ())
    return Segment(target, checkpoint, _deltas(commits, compactions, base, target))


def _complete_checkpoints(files: Iterable[LogFile]) -> dict[int, tuple[LogFile, ...]]:
    """Return for each version one complete checkpoint."""
    groups: dict[tuple[int, int, str | None], dict[int, LogFile]] = defaultdict(dict)
    for file in files:
        if file.kind == "checkpoint":
            whole = file.name if file.part == 0 else None
            groups[file.version, file.parts, whole][file.part] = file
    chosen: dict[int, tuple[LogFile, ...]] = {}
    # Names sort a V2 checkpoint's UUID and a first part before the classic name: any will do,
    # the choice only has to be the same every time.
    for (version, parts, _), found in sorted(groups.items(), key=lambda g: str(g[0])):
        if len(found) == parts and version not in chosen:
            chosen[version] = tuple(found[part] for part in sorted(found))
    return chosen


def _deltas(
    commits: dict[int, LogFile], compactions: list[LogFile], base: int, target: int
) -> tuple[LogFile, ...]:
    widest = {}
    for file in sorted(compactions, key=lambda file: file.end):
        if file.end <= target:
            widest[file.version] = file
    deltas = []
    at = base + 1
    while at <= target:
        delta = widest.get(at) or commits.get(at)
        if delta is None:
            raise _missing(commits, base, at, target)
        deltas.append(delta)
        at = delta.end + 1 if delta.kind == "compaction" else at + 1
    return tuple(deltas)


def _missing(
    commits: dict[int, LogFile], base: int, at: int, target: int
) -> NotFoundError | LogCorruptError:
    oldest = min(commits, default=target)
    if base < 0 and at == 0 and oldest > target:
        return NotFoundError(
            version=target,
            reason=f"the log begins at version {oldest}, and no checkpoint is old enough",
            remedy="Choose a later version; older ones were cleaned up",
        )
    return LogCorruptError(
        path=commit_name(at),
        version=target,
        reason="the log has a gap: this commit is missing, and no checkpoint stands for it",
        remedy="Restore the file from a copy, or open a version before it",
    )
