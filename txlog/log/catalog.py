"""A catalog's answer about the commits of a table that it manages.

Rules: the Delta protocol, "Catalog-managed tables".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from txlog.base.errors import InvalidInputError, LogCorruptError
from txlog.log.names import LogFile, commit_name

STAGED_FOLDER = "_staged_commits"

_STAGED = re.compile(r"(?P<version>\d{20})\.[^/\\\0]+\.json", re.ASCII)


@dataclass(frozen=True)
class CatalogCommits:
    """The catalog's answer for one catalog-managed table, as its client got it.

    Parameters
    ----------
    latest_version
        The last version that the catalog ratified. Published commits above it are ignored.
    staged
        The file names of ratified commits in `_delta_log/_staged_commits`, such as
        `00000000000000000007.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json`. They replace published
        commits of the same versions. Other staged files are ignored.
    inline
        Ratified commits that the catalog itself stores: version → the bytes of the commit.

    Raises
    ------
    InvalidInputError
        A name is not that of a staged commit, a version is above the latest, or two commits have
        the same version.
    """

    latest_version: int
    staged: tuple[str, ...] = ()
    inline: Mapping[int, bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if type(self.latest_version) is not int or self.latest_version < 0:
            raise _bad("latest_version", f"{self.latest_version!r} is not a version")
        object.__setattr__(self, "staged", tuple(self.staged))
        versions = [*self.staged_versions(), *self.inline]
        for version in versions:
            if type(version) is not int or not 0 <= version <= self.latest_version:
                raise _bad(
                    "latest_version",
                    f"a commit has version {version!r}, which is not a ratified version",
                )
        if len(set(versions)) < len(versions):
            raise _bad("staged", "two commits have the same version")

    def staged_versions(self) -> dict[int, str]:
        """Return the staged commits: version → path, relative to the log's folder."""
        found = {}
        for name in self.staged:
            match = _STAGED.fullmatch(name) if isinstance(name, str) else None
            if match is None:
                raise _bad("staged", f"{name!r} is not the name of a staged commit")
            if int(match["version"]) in found:
                raise _bad("staged", f"version {int(match['version'])} is named twice")
            found[int(match["version"])] = f"{STAGED_FOLDER}/{name}"
        return found


def ratified(
    published: Iterable[LogFile], staged: Iterable[LogFile], catalog: CatalogCommits
) -> list[LogFile]:
    """Return the files of the log that the catalog's answer allows. Pure.

    Parameters
    ----------
    published
        What was listed in the log's folder.
    staged
        The staged commits that the catalog names, as listed by the store.

    Raises
    ------
    LogCorruptError
        The commits do not reach the latest version.
    """
    own = {file.version: file for file in staged}
    for version, content in catalog.inline.items():
        own[version] = LogFile(
            commit_name(version), "commit", version, len(content), content=content
        )
    kept = [
        file
        for file in published
        if file.last_version <= catalog.latest_version
        and not (file.kind == "commit" and file.version in own)
    ]
    found = [*kept, *own.values()]
    reached = max((file.last_version for file in found), default=-1)
    if reached < catalog.latest_version:
        raise LogCorruptError(
            version=catalog.latest_version,
            reason=f"the catalog ratified version {catalog.latest_version}, but its commit is "
            f"neither published nor among those that the catalog named; the log ends at {reached}",
            remedy="Pass all commits that the catalog named",
        )
    return found


def _bad(argument: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        argument=argument, reason=reason, remedy="Pass the answer of the table's catalog unchanged"
    )
