"""Choose the files of the log that make up a version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from txlog.base.errors import LogCorruptError, NotFoundError
from txlog.log.names import LogFile, commit_name


@dataclass(frozen=True)
class Segment:
    """The files whose rows, reconciled, are one version of a table.

    `deltas` (commits and compactions) ascend without a gap from the checkpoint to `version`.
    """

    version: int
    checkpoint: tuple[LogFile, ...] = ()  # Several files for a multi-part checkpoint.
    deltas: tuple[LogFile, ...] = ()

    @property
    def checkpoint_version(self) -> int:
        """The checkpoint's version, or -1 without one."""
        return self.checkpoint[0].version if self.checkpoint else -1


def choose_segment(
    files: Iterable[LogFile], *, version: int | None, unusable: Collection[str] = ()
) -> Segment:
    """Choose the files that make up `version`, or the latest version.

    The newest complete checkpoint at or before the version is the base. A compaction replaces
    commits only if they are missing, because the compactions of some writers differ from the
    commits. Pure; the order of `files` has no meaning.

    Parameters
    ----------
    files
        All listed files of the log.
    version
        The version wanted, or None for the latest.
    unusable
        Names of damaged files, which must not be used. They still show that a version exists.

    Raises
    ------
    NotFoundError
        There is no log, or the version is later than the latest, or it can no longer be
        reconstructed.
    LogCorruptError
        A commit is missing in between.
    """
    log_files = [file for file in files if file.kind != "checksum"]
    usable = [file for file in log_files if file.name not in unusable] if unusable else log_files
    commits = {file.version: file for file in usable if file.kind == "commit"}
    others = [file for file in usable if file.kind != "commit"]
    checkpoints = complete_checkpoints(others)
    compactions = [file for file in others if file.kind == "compaction"]
    if not any(file.kind != "compaction" for file in log_files):
        raise NotFoundError(reason="the log has neither commits nor checkpoints")
    latest = max(file.last_version for file in log_files)
    target = latest if version is None else version
    if not 0 <= target <= latest:
        raise NotFoundError(
            version=target,
            reason=f"the table has no such version; the latest is {latest}",
            remedy="Choose a version from Table.history()",
        )
    base = max((at for at in checkpoints if at <= target), default=-1)
    checkpoint = checkpoints.get(base, ())
    later = min((at for at in checkpoints if at > target), default=None)
    return Segment(target, checkpoint, _deltas(commits, compactions, base, target, later))


def complete_checkpoints(files: Iterable[LogFile]) -> dict[int, tuple[LogFile, ...]]:
    """Return for each version one complete checkpoint."""
    groups: dict[tuple[int, int, str | None], dict[int, LogFile]] = defaultdict(dict)
    for file in files:
        if file.kind == "checkpoint":
            whole = file.name if file.part == 0 else None
            groups[file.version, file.parts, whole][file.part] = file
    chosen: dict[int, tuple[LogFile, ...]] = {}
    # Any complete checkpoint will do, but the choice must be the same every time. By name, a V2
    # checkpoint's UUID and a first part sort before the classic name.
    for (version, parts, _), found in sorted(groups.items(), key=lambda g: str(g[0])):
        if len(found) == parts and version not in chosen:
            chosen[version] = tuple(found[part] for part in sorted(found))
    return chosen


def rebuildable(files: Iterable[LogFile]) -> list[int]:
    """Return the versions that can be reconstructed from a log's files, ascending. Pure."""
    log_files = list(files)
    bases = complete_checkpoints(log_files)
    if not any(file.kind in ("commit", "checkpoint") for file in log_files):
        return []  # Compactions alone do not make a log.
    steps: dict[int, list[int]] = defaultdict(list)  # Deltas by the version before their first.
    for file in log_files:
        if file.kind in ("commit", "compaction"):
            steps[file.version - 1].append(file.last_version)
    found: set[int] = set()
    ordered = sorted({-1, *bases})
    for base, following in zip(ordered, [*ordered[1:], None], strict=True):
        waiting = [base]  # This checkpoint is the base of the versions before the next one.
        while waiting:
            at = waiting.pop()
            if at not in found and (following is None or at < following):
                found.add(at)
                waiting.extend(steps.get(at, ()))
    return sorted(found - {-1})


def incomplete_checkpoints(files: Iterable[LogFile]) -> list[LogFile]:
    """Return one part of each incomplete checkpoint whose version has no complete checkpoint."""
    found = list(files)
    whole = complete_checkpoints(found)
    torn = {
        file.version: file
        for file in found
        if file.kind == "checkpoint" and file.version not in whole
    }
    return list(torn.values())


def _deltas(
    commits: dict[int, LogFile],
    compactions: list[LogFile],
    base: int,
    target: int,
    later: int | None,
) -> tuple[LogFile, ...]:
    if target - base <= len(commits):  # Otherwise a commit is missing.
        found = tuple(filter(None, map(commits.get, range(base + 1, target + 1))))
        if len(found) == target - base:
            return found
    ends: dict[int, list[LogFile]] = defaultdict(list)
    for file in sorted(compactions, key=lambda file: file.end):
        if base < file.version and file.end <= target:
            ends[file.version].append(file)
    # Search backwards: the versions from which the target can be reached, and the next file of
    # each.
    following: dict[int, LogFile] = {}
    starts = {version for version in (*commits, *ends) if base < version <= target}
    # Only occurring versions, not a range: a stray file may have any number.
    for version in sorted(starts, reverse=True):
        steps = [*filter(None, [commits.get(version)]), *ends[version]]
        for step in steps:
            after = step.last_version + 1
            if after > target or after in following:
                following[version] = step
                break
    deltas = []
    at = base + 1
    while at <= target:
        if at not in following:
            raise _missing(_first_gap(commits, ends, at, target), target, later)
        deltas.append(following[at])
        at = deltas[-1].last_version + 1
    return tuple(deltas)


def _first_gap(
    commits: dict[int, LogFile], ends: dict[int, list[LogFile]], at: int, target: int
) -> int:
    """Return the last version that is reached from a version before a file is missing."""
    reached = at
    for version in sorted({*commits, *ends}):
        if version < at:
            continue
        if version > reached:
            break
        if version in commits:
            reached = max(reached, version + 1)
        reached = max([reached, *(file.end + 1 for file in ends[version])])
    return min(reached, target)


def _missing(at: int, target: int, later: int | None) -> NotFoundError | LogCorruptError:
    if later is not None:
        return NotFoundError(
            version=target,
            reason=f"the next version that the log can reconstruct is {later}: {commit_name(at)} "
            "is missing",
            remedy="Choose that version or a later one; older versions were cleaned up",
        )
    return LogCorruptError(
        path=commit_name(at),
        version=target,
        reason="the log has a gap: this commit is missing, and no checkpoint covers it",
        remedy="Restore the file from a copy, open a version before it, or remove the files after "
        "the gap if they do not belong to this table",
    )
