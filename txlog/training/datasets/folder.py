"""`Datasets`: the data sets in one folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from txlog.base.errors import (
    in_callers_words,
    named_for_callers,
    require_flags,
    require_texts,
    require_whole,
)
from txlog.base.moments import require_duration
from txlog.base.texts import without_secrets
from txlog.base.threads import Engine, map_ahead
from txlog.extend import open_store, require_app_version
from txlog.training.datasets.audit import audit_of
from txlog.training.datasets.dataset import Dataset
from txlog.training.datasets.events import pending
from txlog.training.datasets.home import Home
from txlog.training.datasets.lifecycle import commit_request, create_dataset, finish_purges
from txlog.training.datasets.limits import (
    DEFAULT_LIMITS,
    Limits,
    require_no_number,
    require_user,
)
from txlog.training.datasets.prepare import Runner, ThreadRunner, submit
from txlog.training.datasets.sources import Sources
from txlog.training.datasets.step_state import Rows
from txlog.training.datasets.steps import (
    Run,
    Step,
    add_step,
    describe,
    remove_step,
    run_steps,
    steps_of,
)
from txlog.training.datasets.sweep import sweep_leftovers
from txlog.training.datasets.types import type_of
from txlog.training.datasets.values import Access, Code, Summary, Who

if TYPE_CHECKING:
    import pyarrow as pa


class Datasets:
    """The data sets in one folder, which contains only Delta tables and files.

    Any number of processes may use the folder at once.

    Parameters
    ----------
    root
        A folder or a URI, which may not exist yet: the first data set creates it.
    storage_options
        As for `Table`.
    sources
        The allowed places of sources, by names: `{"incoming": "s3://raw/in"}`, or a `Sources`.
        Default: any path or URI that this process may read.
    limits
        The limits of sources: a `Limits`.
    engine
        The engine for work over many files; as for `Table`.
    runner
        The runner that makes training sets. Default: two threads of this process.
    user
        Who makes the changes, for commits, the ledger and the tables' history. Default: the user of
        the operating system. A service records the name of each request's token.

    Examples
    --------
    >>> datasets = Datasets("datasets")  # doctest: +SKIP
    >>> intents = datasets.create("intents", "TEXT_INTENT", "in/001.csv")  # doctest: +SKIP
    >>> intents.update("in/002.csv", "More", tags={"category": "training set"})  # doctest: +SKIP
    """

    @in_callers_words
    def __init__(
        self,
        root: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        sources: Sources | Mapping[str, str | os.PathLike[str]] | None = None,
        engine: Engine | None = None,
        runner: Runner | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
        by: str | None = None,
        user: str | None = None,
    ) -> None:
        if not isinstance(sources, Sources):
            sources = Sources(sources, storage_options)
        self._home = Home(
            open_store(root, storage_options),
            sources=sources,
            limits=limits,
            runner=runner or ThreadRunner(),
            engine=engine,
            by=by,
        )
        if user is not None:
            self._home = self._home.acting(Who(require_user(user)))

    @classmethod
    def _of(cls, home: Home) -> Datasets:
        datasets = cls.__new__(cls)
        datasets._home = home
        return datasets

    def __repr__(self) -> str:
        return f"txlog.training.Datasets({without_secrets(self.root)!r})"

    @property
    def root(self) -> str:
        """The folder, as an absolute path or a URI."""
        return self._home.root

    def acting_as(
        self, user: str | None, client: str | None = None, *, limited: bool = False
    ) -> Datasets:
        """Return the same data sets for another user, as a server does for each request.

        Changes by the returned object are recorded with this user and client. None keeps those of
        this object: the user of the operating system, and txlog.

        Parameters
        ----------
        limited
            The owners of data sets decide whom this user lets use them (`Dataset.share`), and what
            the steps do that this user adds (`on_commit`). The server checks all other rights.

        Raises
        ------
        InvalidInputError
            The user is blank, has characters that cannot be printed, or more than 255 characters.
        """
        if user is not None:
            require_user(user)
        if client is not None:
            self._home.limits.require_text("client", client)
        require_flags(limited=limited)
        return Datasets._of(self._home.acting(Who(user, client, limited)))

    def audit(self) -> pa.Table:
        """Return a row for each change: who made it, and when. The rows are ordered by time.

        Columns: `time` (UTC, by the clock of the process that did it), `user` and `client` (null if
        unknown), `action`, `dataset_id`, `dataset` (the name), `commit`, `training_set` (the hash)
        and `details` (JSON). Actions are `committed`, and those of the ledger that somebody asked
        for: `created`, `deleted`, `undeleted`, `purged`, `hidden`, `shown`, `tagged`, `shared`,
        `branched`, `published`, `discarded`,
        `asked`, `step_added` and `step_removed`, whose data set is the input.
        Commits of a data set that is purged as a whole are gone.
        """
        return audit_of(self._home)

    def access(self, *, purged: bool = True) -> Mapping[int, tuple[str, Access]]:
        """Return the name of each data set and who may use it at a service, by number.

        Parameters
        ----------
        purged
            Also return data sets that are purged as a whole. Deleted ones are always returned.
        """
        require_flags(purged=purged)
        return {
            number: (one.name, one.access)
            for number, one in self._home.ledger.state().datasets.items()
            if purged or not one.purged
        }

    def create(
        self,
        name: str,
        type: str,
        source: Any = None,
        *,
        tags: Mapping[str, str] | None = None,
        description: str | None = None,
        message: str = "Initial commit",
        inputs: Sequence[Any] = (),
        code: Code | str | None = None,
        txn: tuple[str, int] | None = None,
    ) -> Dataset:
        """Create a data set, with a first commit if there is a source.

        It is created completely or not at all. The arguments except `name`, `type` and
        `description` are those of `Dataset.update`.

        Parameters
        ----------
        name
            A name that no other data set has, except deleted ones.
        type
            For example `TEXT_INTENT`, `IMAGE_CLASS`, `AUDIO`, `VIDEO`, `GENERIC` or `TABLE`.
        txn
            `(application, version)`. A data set that was created with this pair is returned.

        Raises
        ------
        AlreadyExistsError
            The name is taken.
        NotFoundError
            There is no such type, or no such source.
        SchemaMismatchError, InvalidInputError
            The source does not fit. Nothing was created.
        CommitConflictError
            Another process has meanwhile removed contents that the source shares with a data set,
            and the source cannot be read again. Nothing was created.
        """
        home = self._home
        kind = type_of(type)
        require_app_version(txn)
        home.limits.require_name("name", name)
        require_no_number("name", name)
        if description is not None:
            home.limits.require_text("description", description)
        request = commit_request(home, message, tags, inputs, code)
        made = create_dataset(
            home, kind, request, source, name=name, description=description, txn=txn
        )
        return Dataset._of(home, made)

    @property
    def sources(self) -> Sources:
        """The allowed places of sources."""
        return self._home.sources

    def recorded(self, application: str) -> int | None:
        """Return the version of `txn` with which an application created a data set, or None."""
        require_texts(application=application)
        state = self._home.ledger.state()
        made = [
            one.txn[1] for one in state.datasets.values() if one.txn and one.txn[0] == application
        ]
        return max(made, default=None)

    def dataset(self, wanted: int | str, *, purged: bool = False) -> Dataset:
        """Return a data set by its number, its uuid, or its name if it is not deleted.

        Parameters
        ----------
        purged
            If there is none, not even a deleted one with the name, return the last one that was
            purged, to finish a purge that was interrupted.

        Raises
        ------
        NotFoundError
            There is no such data set; the error lists the existing ones.
        """
        require_flags(purged=purged)
        return Dataset._of(self._home, self._home.ledger.state().find(wanted, purged=purged))

    def list(
        self,
        limit: int = 100,
        after: int | None = None,
        type: str | None = None,
        *,
        deleted: bool = False,
    ) -> list[Summary]:
        """Return summaries of the data sets, in the order of their creation.

        If the table of a data set is damaged, its summary has no commits, and a warning names it.

        Parameters
        ----------
        limit
            The largest number of data sets.
        after
            The number of the last data set of the previous page: only later ones are returned.
        type
            Only data sets of this type.
        deleted
            Also return deleted data sets that are not purged.
        """
        require_flags(deleted=deleted)
        require_whole("limit", limit, 1)
        if after is not None:
            after = require_whole("after", after)
        wanted = None if type is None else type_of(type).name
        found = [
            one
            for number, one in sorted(self._home.ledger.state().datasets.items())
            if number > (after or 0)
            and not one.purged
            and (deleted or not one.deleted)
            and wanted in (None, one.type)
        ]
        at_once = self._home.store.reads_at_once
        if at_once == 1:
            return [one for one in map(self._home.listed, found[:limit]) if one is not None]
        summaries = map_ahead(self._home.listed, found[:limit], workers=at_once, ahead=at_once)
        with closing(summaries):
            return [one for one in summaries if one is not None]

    # Pipelines ----------------------------------------------------------------------------------

    def on_commit(
        self,
        dataset: int | str,
        *,
        run: str | Sequence[str],
        into: str,
        rows: Rows = "new",
        type: str = "TABLE",
        name: str | None = None,
    ) -> Step:
        """Add a step: a program that makes a commit of one data set from each commit of another.

        `run_steps` runs it, also for the commits that exist already. The same step can be added
        again, which changes nothing.

        Parameters
        ----------
        dataset
            The data set on whose commits it runs. It may be one that another step will make.
        run
            A Python function: `clean.py` (its function `run`), `clean.py:function` or
            `module:function`. It takes a `pyarrow.RecordBatchReader` and returns Arrow data, or
            None for no rows. Or a command, as a list of texts: it reads an Arrow stream from its
            standard input and writes one to the file in its environment variable `TXLOG_OUTPUT`.
            Both run in a process of their own, in the folder that `run_steps` is given.
        into
            The data set that it makes. If there is none of this name, the first run creates it, for
            the user who added the step and for those who may read the input. If another data set
            gets the name before that, the step stops.
        rows
            `new`: the program gets the rows of one commit, and its rows are added. `all`: it gets
            the rows of all commits that are not hidden, and its rows replace the earlier ones, as
            `Dataset.update` does with `replace`; commits that came together are one run.
        type
            The type of the data set, if the first run creates it.
        name
            The name of the step. Default: that of `into`.

        Raises
        ------
        AlreadyExistsError
            Another step has the name, or makes the data set.
        InvalidInputError, InvalidTypeError
            The step would run on its own result, or an argument is wrong.
        NotFoundError
            There is no such data set or type.
        """
        home = self._home
        added = add_step(home, dataset, run, into, rows, type, name)
        return describe(home, home.ledger.state(), added)

    def steps(self) -> Sequence[Step]:
        """Return the steps, in the order in which they were added."""
        return steps_of(self._home)

    def remove_step(self, name: str) -> None:
        """Remove a step. The data set that it made stays.

        Raises
        ------
        NotFoundError
            There is no such step; the error lists the existing ones.
        """
        require_texts(name=name)
        remove_step(self._home, name)

    def run_steps(
        self,
        name: str | None = None,
        *,
        folder: str | os.PathLike[str] = ".",
        timeout_s: float | None = None,
    ) -> Sequence[Run]:
        """Run what waits, until nothing waits any more, and return the runs in their order.

        A step that fails is not an error of this call: its run says why, the step is shown as
        FAILED, and the next call tries it again. Later commits wait for it. Any number of processes
        may call it: each commit has one result, and a step runs in one process at a time.

        It runs what the folder of data sets names: who can write there can run programs here.

        Parameters
        ----------
        name
            Only this step. Default: all, those too that run on the results of others.
        folder
            The folder of the programs, in which they run.
        timeout_s
            A program that runs longer is killed. Default: none is.

        Raises
        ------
        NotFoundError
            There is no such step.
        """
        if timeout_s is not None:
            require_duration("timeout_s", timeout_s)
        return run_steps(self._home, name, folder, timeout_s)

    def sweep(self) -> int:
        """Take over the training sets of dead workers, and return their number.

        Servers call it once a minute. The runner makes the training sets. Interrupted purges are
        finished. Once a day, files are deleted that are a day old and to which nothing refers:
        staged files and tables of processes that died, contents of updates that were refused, and
        files of attempts that other workers took over. If a data set is damaged, a warning names
        it, and contents stay, because it may need them. If the store has no times of files, a
        warning says this, and no file is deleted.
        """
        home = self._home
        for known in home.ledger.state().datasets.values():
            home.if_whole(known, partial(finish_purges, home))
        sweep_leftovers(home)
        waiting = pending(home.ledger.state(), home.effects.now_ms())
        for dataset, one in waiting:
            job = home.if_whole(dataset, partial(home.job, asked=one.asked))
            if job is not None:
                submit(job, home.ledger, home.runner, home.engine)
        return len(waiting)


named_for_callers(Datasets)
