"""Which commits a training set is made of, and the hash that names it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from txlog.datasets.events import canonical
from txlog.datasets.values import Asked, Commit
from txlog.errors import InvalidInputError, NotFoundError


def pick(
    commits: Iterable[Commit], upto: int | None = None, tags: Mapping[str, str] | None = None
) -> list[Commit]:
    """Return the commits up to one, that one included, which have all tags and are not hidden.

    Raises
    ------
    NotFoundError
        There is no commit `upto`; the last one is named.
    InvalidInputError
        No commit has the tags.
    """
    known = list(commits)
    wanted = tags or {}
    if upto is not None and all(commit.commit_id != upto for commit in known):
        last = max((commit.commit_id for commit in known), default=0)
        raise NotFoundError(
            version=upto,
            reason=f"there is no commit {upto}",
            remedy=f"The last one is {last}" if last else "The data set has no commit yet",
        )
    below = [c for c in known if upto is None or c.commit_id <= upto]
    shown = [c for c in below if not (c.hidden or c.purged)]
    picked = [c for c in shown if wanted.items() <= c.tags.items()]
    if not picked:
        listed = ", ".join(f"{name}={value}" for name, value in sorted(wanted.items()))
        raise InvalidInputError(
            argument="tags" if wanted else "commit",
            reason=f"no commit of {len(below)} has {listed}"
            if wanted
            else f"none of {len(below)} commits can be picked",
            remedy="Ask for tags that a commit has" if wanted else "Add a commit, or show one",
        )
    return sorted(picked, key=lambda commit: commit.commit_id)


def ask(
    dataset: str,
    type_key: str,
    picked: Sequence[Commit],
    form: str = "parquet",
    options: Mapping[str, str] | None = None,
) -> Asked:
    """Return what a training set of picked commits is made of, with its version hash.

    The hash is `v1` and the first 40 hex digits of the SHA-256 of canonical JSON, so it names the
    same content and recipe in every process.

    Parameters
    ----------
    dataset
        The data set's uuid.
    type_key
        Name and version of the type, such as `text-intent/1`.
    """
    commits = tuple((commit.commit_id, commit.digest) for commit in picked)
    recipe = {
        "commits": [list(one) for one in commits],
        "dataset": dataset,
        "form": form,
        "options": dict(options or {}),
        "type": type_key,
    }
    digest = sha256(canonical(recipe).encode()).hexdigest()
    return Asked(f"v1{digest[:40]}", type_key, commits, form, dict(options or {}))
