"""The commits ahead of a stream, and those that were cleaned up before it read them."""

from __future__ import annotations

from txlog.effects import REAL, Effects
from txlog.errors import NotFoundError
from txlog.log.names import LogFile, commit_name, log_path
from txlog.snapshot.load import list_log
from txlog.store.base import Store

_LOOK_AGAIN_S = 10.0


class CommitsAhead:
    """Finds the commit of a version that is there, not there yet, or there no more.

    A stream asks for the next commit many times a second, so that asking costs one look at one
    file. Only now and then the log is listed: a later version tells that the commit is lost.
    """

    def __init__(self, store: Store, *, pass_over: bool, effects: Effects = REAL) -> None:
        self._store = store
        self._pass_over = pass_over
        self._effects = effects
        self._listed: dict[int, LogFile] = {}
        self._listed_s: float | None = None

    def find(self, version: int, *, exists: bool = False) -> LogFile | None:
        """Return a version's commit, or None if the version does not exist yet.

        If the commit is lost, and that is to be passed over, the next one that is kept is returned.

        Parameters
        ----------
        exists
            Whether the version is known to exist, or to have existed.

        Raises
        ------
        NotFoundError
            The commit is lost; the version is named (rule STR-10). Or the log no longer has the
            version before it (STR-12).
        """
        found = self._listed.get(version)
        if found is not None:
            return found
        if not self._is_due():
            found = self._look(version)
            if found is not None or not exists:
                return found
        last = self._list(version)
        if version in self._listed:
            return self._listed[version]
        if last < version - 1:
            raise NotFoundError(
                path=self._store.root,
                version=version - 1,
                reason=f"the stream has read version {version - 1}, which the log does not have: "
                "the table was removed, replaced or restored from a copy",
                remedy="Start the query with a new checkpoint",
            )
        if last < version:
            return None
        found = self._look(version)  # A listing may begin before a commit that others follow.
        if found is not None:
            return found
        kept = min(self._listed, default=None)
        if self._pass_over:
            return None if kept is None else self._listed[kept]
        raise NotFoundError(
            path=self._store.root,
            version=version,
            reason=f"the commit of version {version} was cleaned up before the stream read it; "
            + (f"the log goes on with version {kept}" if kept else "only a checkpoint is left"),
            remedy="Start the query with a new checkpoint, or set failOnDataLoss=false to go on "
            "without what is lost; delta.logRetentionDuration keeps commits for longer",
        )

    @property
    def last_listed(self) -> int:
        """The latest version of which the commit was listed; -1 for none."""
        return max(self._listed, default=-1)

    def forget_before(self, version: int) -> None:
        """Forget the listed commits before a version."""
        self._listed = {at: file for at, file in self._listed.items() if at >= version}

    def _is_due(self) -> bool:
        """Return whether the log must be listed before a commit is taken as not there yet."""
        if self._listed_s is None:
            return True
        return self._effects.monotonic_s() - self._listed_s >= _LOOK_AGAIN_S

    def _look(self, version: int) -> LogFile | None:
        name = commit_name(version)
        try:
            info = self._store.info(log_path(name))
        except NotFoundError:
            return None
        return LogFile(name, "commit", version, info.size, info.modified_ms)

    def _list(self, version: int) -> int:
        """List the commits from a version on; return the last version that the log knows.

        It is -1 if that is not even the version before.
        """
        since = max(version - 1, 0)
        files = [file for file in list_log(self._store, since=since) if file.kind != "checksum"]
        self._listed = {
            file.version: file
            for file in files
            if file.kind == "commit" and file.version >= version
        }
        self._listed_s = self._effects.monotonic_s()
        return max((file.last_version for file in files), default=-1)
