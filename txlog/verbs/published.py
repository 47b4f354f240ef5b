"""What a publish of a branch commits: its net changes, if no commit of the table conflicts.

The branch is compared with its base, and each commit of the table after the base is judged as the
winner of a lost race is. Rules: spec/branches.md, BRA-20 to BRA-32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa
from pyroaring import BitMap64

from txlog.actions.file import Add, Cdc, Remove
from txlog.actions.table import DomainMetadata, Metadata, Txn
from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import flat
from txlog.base.errors import (
    CommitConflictError,
    NotFoundError,
    TxlogError,
    UnsupportedFeatureError,
    tidied,
)
from txlog.base.threads import cached_property
from txlog.changes.diff import plan_diff
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Kind, Reads
from txlog.commit.judge import judge
from txlog.commit.loop import highest_fragment_id
from txlog.commit.winner import is_additive, tightens
from txlog.data_files.change_files import (
    change_layout,
    discard_changes,
    records_changes,
    write_changes,
)
from txlog.data_files.deletions import adds_of, removes_of, united_with
from txlog.data_files.row_changes import FileDeletes, RowChanges
from txlog.expressions.bind import bind, depends_on_zone
from txlog.expressions.sql import parse_sql, to_sql
from txlog.expressions.tree import Expression, Or
from txlog.fragments.ids import (
    ID_APP,
    ID_TAG,
    ROW_TRACKING_DOMAIN,
    gives_row_ids,
    tag_texts,
    tagged_ids,
    valid_id,
)
from txlog.fragments.rows import FIELDS_TAG
from txlog.log.paths import canonical_key, canonical_keys
from txlog.protocol.access import brings_vectors, features_of, merged_protocol, with_vectors
from txlog.protocol.properties import STAMPED_SINCE
from txlog.reconcile.files import file_keys
from txlog.scan.deletions import load_deletions
from txlog.scan.files import as_fragments
from txlog.schema.arrow import arrow_schema
from txlog.snapshot.branches import SEAL, Branch, is_registry
from txlog.snapshot.commits import Commit, file_rows, read_commits
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_commits, load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.branches import BranchStore
from txlog.verbs.restore import files_without

_BY_PREDICATE = frozenset({"DELETE", "UPDATE"})
_ROW_IDS = ("base_row_id", "default_row_commit_version")
_SEALING = frozenset({"CLOSE BRANCH", "REOPEN BRANCH"})


@dataclass(frozen=True)
class Net:
    """The files that a branch added to its base and removed from it, as `FILE_ROWS`."""

    before: pa.Table  # All files of the base.
    after: pa.Table  # All files of the branch's last version.
    gone: pa.Table
    came: pa.Table
    renumbered: bool = False  # Whether files that stayed have other ids, of rows or fragments.

    @cached_property
    def known(self) -> frozenset[str]:
        """The keys of the paths of the base."""
        return _keys(self.before)

    @cached_property
    def row_deletes(self) -> frozenset[str]:
        """The logged paths of files that only lost rows."""
        gone = dict(zip(_key_list(self.gone), self.gone["dv_id"].to_pylist(), strict=True))
        return frozenset(
            path
            for key, path in zip(_key_list(self.came), self.came["path"].to_pylist(), strict=True)
            if key in gone
        )

    @property
    def has_columns(self) -> bool:
        """Whether there are column files among the files."""
        return any(_has_fields(rows) for rows in (self.gone, self.came))


def net_of(before: pa.Table, after: pa.Table) -> Net:
    """Return the difference of the live files of two versions. Pure."""
    gone, came = files_without(before, after), files_without(after, before)
    return Net(before, after, gone, came, _are_renumbered(before, after))


def _are_renumbered(before: pa.Table, after: pa.Table) -> bool:
    """Return whether files of both versions were committed again with other ids."""
    places = pc.index_in(flat(file_keys(after)), value_set=flat(file_keys(before)))
    stayed = pc.is_valid(places)
    pairs = [(flat(after[name]), flat(before[name]).take(places)) for name in _ROW_IDS]
    pairs.append((tag_texts(after, ID_TAG), tag_texts(before, ID_TAG).take(places)))
    for now, then in pairs:
        either = pc.xor(pc.is_valid(now), pc.is_valid(then))
        changed = pc.fill_null(pc.not_equal(now, then), either)
        if pc.any(pc.and_(stayed, pc.or_(changed, either))).as_py():
            return True
    return False


def _key_list(rows: pa.Table) -> list[str]:
    return [canonical_key(path) for path in rows["path"].to_pylist()]


def _keys(rows: pa.Table) -> frozenset[str]:
    return frozenset(_key_list(rows))


def _has_fields(rows: pa.Table) -> bool:
    return any(FIELDS_TAG in dict(tags or ()) for tags in rows["tags"].to_pylist())


@dataclass(eq=False)
class Publication:
    """A branch that is published: its versions, and the files that were written for it."""

    context: Context
    branch: Branch
    base: Snapshot
    tip: Snapshot
    commits: list[Commit]  # Of the branch.
    net: Net
    winners: list[Commit] = field(default_factory=list)  # Of the table, after the base.
    _cdc: tuple[Cdc, ...] | None = None
    _united: RowChanges | None = None

    @classmethod
    def of(cls, context: Context, branch: Branch) -> Publication:
        """Load a branch.

        Raises
        ------
        NotFoundError
            The base of the branch can no longer be rebuilt.
        LogCorruptError
            The log of the branch is damaged.
        """
        view = BranchStore.of(context.store, branch.chain)
        try:
            base = load_snapshot(context.store, version=branch.base_version)
            tip = load_snapshot(view)
        except NotFoundError as error:
            error.remedy = (
                f"The base of the branch {branch.name!r} is lost: another engine may have cleaned "
                "up the log. Discard the branch"
            )
            raise
        commits = _all_commits(view, tip, branch.base_version + 1)
        net = net_of(load_files(context.store, base).live, load_files(view, tip).live)
        return cls(context, branch, base, tip, commits, net)

    @property
    def own_commits(self) -> list[Commit]:
        """The commits of the branch, without those that close its log."""
        return [
            one for one in self.commits if one.info is None or one.info.operation not in _SEALING
        ]

    @property
    def last_version(self) -> int:
        """The version of the last commit of the branch."""
        own = self.own_commits
        return own[-1].version if own else self.base.version

    @cached_property
    def moves_only(self) -> bool:
        """Whether the branch only moved rows from files to files."""
        rows = file_rows(self.commits)
        return bool(rows.num_rows) and not pc.any(rows["data_change"]).as_py()

    @property
    def removes_rows(self) -> bool:
        """Whether the branch removed or changed rows of its base."""
        return bool(self.net.gone.num_rows or self._replaces_values) and not self.moves_only

    @property
    def _replaces_values(self) -> bool:
        """Whether new column files give rows of the base other values."""
        return any(self._columns_given.values())

    @cached_property
    def _columns_given(self) -> dict[str, bool]:
        """The logged paths of the new column files of fragments of the base.

        True if the file gives a column that the base has, and so changes values of rows.
        """
        came = self.net.came
        whole = self._primaries(came)
        return {
            path: self._gives_old(text)
            for path, text, number in zip(
                came["path"].to_pylist(),
                tag_texts(came, FIELDS_TAG).to_pylist(),
                tagged_ids(came).to_pylist(),
                strict=True,
            )
            if text is not None and number not in whole
        }

    def _primaries(self, rows: pa.Table) -> set[int | None]:
        """Return the ids of fragments that come or go as a whole, with their primary files."""
        chosen = arrow_array(sorted(self.net.row_deletes), pa.string())
        among = pc.is_in(rows["path"], value_set=chosen)
        whole = pc.and_not(pc.is_null(tag_texts(rows, FIELDS_TAG)), flat(among))
        return set(tagged_ids(rows).filter(whole).to_pylist()) - {None}

    def _gives_old(self, text: str | None) -> bool:
        """Return whether a list of columns has one of the base."""
        mode = self.base.mapping_mode
        return bool({one.name_in_files(mode) for one in self.base.schema.fields} & _listed(text))

    @cached_property
    def reads(self) -> Reads:
        """What the commits of the branch read, as far as they say it; else all rows (BRA-25)."""
        wheres: list[Expression] = []
        for commit in self.own_commits:
            if _is_blind(commit):
                continue
            where = self._where_of(commit)
            if where is None:
                return Reads(everything=True)
            wheres.append(where)
        return Reads(where=Or(tuple(wheres)) if len(wheres) > 1 else next(iter(wheres), None))

    def _where_of(self, commit: Commit) -> Expression | None:
        """Return the predicate of the rows that a delete or an update read, if it is recorded."""
        info = commit.info
        if info is None or info.operation not in _BY_PREDICATE:
            return None
        if not (info.engine_info or "").startswith("txlog/"):
            return None
        if self.tip.metadata.schema_string != self.base.metadata.schema_string:
            return None  # Names may mean other columns.
        try:
            (text,) = orjson.loads(info.operation_parameters["predicate"])
            where = bind(parse_sql(text), self.base.schema)
        except (TxlogError, ValueError, TypeError, LookupError):
            return None
        # The text is not that of a predicate, but of what another engine found; or nobody knows
        # its time zone.
        is_plain = to_sql(where) == text and not depends_on_zone(where, self.base.schema)
        return where if is_plain else None

    # What can be published. ----------------------------------------------------------------------

    def require_publishable(self, latest: Snapshot) -> None:
        """Raise if the branch cannot be published on top of a version of the table.

        Raises
        ------
        CommitConflictError
            A commit of the table after the base conflicts with the branch.
        UnsupportedFeatureError
            The changes of the branch cannot be published; the error says why.
        """
        self.winners = self._later_commits(latest)
        if latest.metadata.id != self.base.metadata.id:
            raise self._conflict("replaced the table", rule="CON-2")
        if self.removes_rows and latest.is_active("appendOnly"):
            raise self._conflict("made the table append-only", rule="CON-2")
        self._require_same_rules(latest)
        self._require_same_ids()
        self._require_own_applications(latest)
        self._require_own_ids(latest)
        merged_metadata(self.base.metadata, self.tip.metadata, latest.metadata, self._conflict)
        self._domains(latest)
        rebases = self._judge()
        if rebases and self._unite(latest) is None:
            raise self._conflict("deleted some of the same rows", rule="CON-10")

    def _later_commits(self, latest: Snapshot) -> list[Commit]:
        try:
            return _all_commits(self.context.store, latest, self.base.version + 1)
        except NotFoundError as error:
            error.remedy = (
                "Another engine cleaned up the log. Write the rows of the branch to the table, "
                "and discard the branch"
            )
            raise

    def _conflict(
        self, reason: str, *, rule: str, path: str | None = None, version: int | None = None
    ) -> CommitConflictError:
        last = self.winners[-1].version if self.winners else self.base.version
        return CommitConflictError(
            version=last if version is None else version,
            rule=rule,
            path=path or self.base.root,
            reason=f"the branch {self.branch.name!r} begins at version {self.base.version}, and "
            f"another writer {reason} in the table since then",
            remedy="Nothing was published. Make the changes again on a new branch of the latest "
            "version, or in the table itself",
        )

    def _require_same_rules(self, latest: Snapshot) -> None:
        """Raise if rules of one side may forbid what the other side wrote (BRA-27)."""
        base, tip = self.base, self.tip
        if self.net.came.num_rows or self.net.gone.num_rows:
            if not _adds_only(base, latest.metadata):
                raise self._conflict("changed the metadata", rule="CON-2")
            lost = features_of(base.protocol) - features_of(latest.protocol)
            if lost:
                raise self._conflict(f"dropped the feature {min(lost)}", rule="CON-1")
        if features_of(base.protocol) - features_of(tip.protocol):
            raise UnsupportedFeatureError(
                path=base.root,
                features=tuple(features_of(base.protocol) - features_of(tip.protocol)),
                reason=f"the branch {self.branch.name!r} dropped features of the table",
                remedy="Drop them in the table itself",
            )
        changed = any(file_rows([one]).num_rows for one in self.winners)
        if changed and tip.metadata != base.metadata and _forbids(base, tip.metadata):
            raise self._conflict(
                "changed rows, which the new rules of the branch may forbid,", rule="CON-15"
            )

    def _require_same_ids(self) -> None:
        """Raise if the branch gave ids to files of its base: only the table can give them."""
        base, tip = self.base, self.tip
        begins = (tip.has_stable_row_ids and not base.has_stable_row_ids) or (
            tip.supports("rowTracking") and not base.supports("rowTracking")
        )
        if begins or self.net.renumbered:
            feature = "rowTracking" if tip.supports("rowTracking") else "txlog.fragments"
            raise UnsupportedFeatureError(
                path=base.root,
                features=(feature,),
                reason=f"the branch {self.branch.name!r} began to give ids to rows or fragments of "
                "its base, and the table may give these ids to others",
                remedy="Turn the feature on in the table itself, and make the other changes on a "
                "new branch",
            )

    def _require_own_applications(self, latest: Snapshot) -> None:
        """Raise if an application wrote on both sides (BRA-24)."""
        for txn in self._txns():
            if latest.transaction_version(txn.app_id) != self.base.transaction_version(txn.app_id):
                raise self._conflict(f"wrote as the application {txn.app_id}", rule="CON-3")

    def _txns(self) -> list[Txn]:
        before = self.base.controls.txns
        return [
            txn
            for app_id, txn in self.tip.controls.txns.items()
            if app_id != ID_APP and (app_id not in before or before[app_id].version != txn.version)
        ]

    def _require_own_ids(self, latest: Snapshot) -> None:
        """Raise if rows would keep ids or versions that only the branch gave them (BRA-22)."""
        if not (self.tip.has_stable_row_ids or latest.has_stable_row_ids):
            return
        for commit in self.own_commits:
            rows = file_rows([commit])
            added = rows.filter(rows["is_add"])
            touched = _keys(rows.filter(pc.invert(rows["is_add"])))
            # A vector may also mark rows as deleted that another file of the commit now has.
            if _keys(added) - touched and touched - self.net.known:
                raise UnsupportedFeatureError(
                    path=self.base.root,
                    features=("rowTracking",),
                    reason=f"version {commit.version} of the branch {self.branch.name!r} moved "
                    "rows that the branch itself had added or changed, so they have ids of the "
                    "branch, which the table may have given to other rows",
                    remedy="Make the changes again on a new branch, each row at most once; or "
                    "write the rows to the table",
                )

    def _judge(self) -> bool:
        """Judge each commit of the table; return whether rows must be merged."""
        net, rebases = self.net, False
        if not net.came.num_rows and not net.gone.num_rows:
            return False
        intent = self._judged()
        for winner in self.winners:
            files = file_rows([winner])
            if not files.num_rows:
                continue
            if self._columns_given:  # Each fragment has them, also one that the winner adds.
                raise self._conflict(
                    "changed rows", rule="CON-14", path=files["path"][0].as_py(),
                    version=winner.version,
                )  # fmt: skip
            verdict = judge(intent, replace(winner, controls=()), files, self.base)
            if verdict.outcome == "rebase":
                rebases = True
            elif verdict.outcome != "ok":
                raise self._conflict(
                    verdict.reason, rule=verdict.rule, path=verdict.path, version=winner.version
                )
        return rebases

    def _judged(self) -> Intent:
        """Return the changes of the branch as the intent of one verb."""
        net, reads = self.net, self.reads
        new = set(net.came["path"].to_pylist()) - net.row_deletes
        kind: Kind = "replace"
        if self.moves_only:
            kind, reads = "compact", Reads()
        elif not net.gone.num_rows:
            kind = "append"
        elif not new:
            kind = "delete"
        return Intent(
            operation="PUBLISH BRANCH",
            read_version=self.base.version,
            kind=kind,
            adds=tuple(adds_of(net.came)),
            removes=tuple(removes_of(net.gone, 0)),
            reads=reads,
            row_deletes=net.row_deletes,
            keeps_packs=True,
        )

    def _unite(self, latest: Snapshot) -> RowChanges | None:
        """Merge deleted rows with those that the table lost meanwhile (CON-10)."""
        self._discard_united()
        net, store = self.net, self.context.store
        chosen = arrow_array(sorted(net.row_deletes), pa.string())

        def by_path(rows: pa.Table) -> dict[str, Any]:
            found = as_fragments(rows.filter(pc.is_in(rows["path"], value_set=chosen)))
            return {one.path: one for one in found}

        before, after = by_path(net.gone), by_path(net.came)
        files = []
        for path, fragment in after.items():
            then = load_deletions(store, before[path]) or BitMap64()
            now = load_deletions(store, fragment) or BitMap64()
            rows = fragment.physical_rows
            if then - now or rows is None:
                return None
            files.append(FileDeletes(before[path], now - then, then, rows))
        changes = RowChanges(files=tuple(files))
        # Other files of a winner are judged; here only the same files matter.
        self._united = united_with(self.context, latest, changes, self.winners)
        return self._united

    # The commit. ---------------------------------------------------------------------------------

    def intent(self, latest: Snapshot) -> Intent:
        """Return the net changes on top of a version, after `require_publishable` of it."""
        net = self.net
        now_ms = self.context.effects.now_ms()
        cdc = self._changes()
        change = not self.moves_only and cdc != ()
        united = self._united
        left = self._primaries(net.gone)
        removes = [
            one.model_copy(update={"data_change": change and self._tells(one, left)})
            for one in removes_of(net.gone, now_ms)
        ]
        adds = [
            one.model_copy(
                update={"data_change": change and self._columns_given.get(one.path, True)}
            )
            for one in adds_of(net.came)
        ]
        if united is not None:
            paths = net.row_deletes
            removes = [one for one in removes if one.path not in paths] + list(united.removes)
            adds = [one for one in adds if one.path not in paths] + list(united.vectored)
        adds, mark = self._with_ids(latest, adds)
        restated = self._restated(latest)
        metadata = merged_metadata(
            self.base.metadata, self.tip.metadata, latest.metadata, self._conflict
        )
        metadata = self._without_stamps(metadata, latest)
        protocol = merged_protocol(latest.protocol, self.tip.protocol)
        txns = self._txns()
        return Intent(
            operation="PUBLISH BRANCH",
            read_version=latest.version,
            kind="restore" if removes or restated or self._columns_given else "append",
            adds=(*adds, *restated),
            removes=tuple(removes),
            cdc=cdc or (),
            protocol=None if protocol == latest.protocol else protocol,
            metadata=None if metadata == latest.metadata else metadata,
            query_txns=(*txns, *mark),
            domains=self._domains(latest),
            reads=self.reads,
            row_deletes=net.row_deletes,
            keeps_packs=True,
            own_files=frozenset() if united is None else united.own_files,
            metrics={
                "numAddedFiles": len(adds),
                "numRemovedFiles": len(removes),
                "numBranchCommits": len(self.own_commits),
                **({"numUpdatedFiles": len(restated)} if restated else {}),
            },
        )

    def _tells(self, remove: Remove, left: set[int | None]) -> bool:
        """Return whether the remove of a file changes rows: not that of unknown columns alone."""
        text = (remove.tags or {}).get(FIELDS_TAG)
        number = (remove.tags or {}).get(ID_TAG)
        whole = number is not None and valid_id(number) and int(number) in left
        return text is None or whole or self._gives_old(text)

    def _restated(self, latest: Snapshot) -> list[Add]:
        """Return files of the base with the statistics that the branch computed (BRA-33).

        So are column files that give fewer columns. A file that the table removed, or whose
        statistics it has computed since, stays as it is.
        """
        own = file_rows(self.own_commits)
        own = own.filter(own["is_add"])
        again = _keys(own) & self.net.known
        if not again:
            return []
        chosen = arrow_array(sorted(again), pa.string())

        def by_key(rows: pa.Table) -> dict[str, Add]:
            rows = rows.filter(pc.is_in(canonical_keys(rows["path"]), value_set=chosen))
            return dict(zip(file_keys(rows).to_pylist(), adds_of(rows), strict=True))

        before, after = by_key(self.net.before), by_key(self.net.after)
        changed = {
            key: change
            for key, add in after.items()
            if key in before and (change := _restatement(before[key], add))
        }
        if not changed:
            return []
        now = by_key(load_files(self.context.store, latest).live)
        return [
            add.model_copy(update={**changed[key], "data_change": False})
            for key, add in now.items()
            if key in changed and add.stats == before[key].stats
        ]

    def joined(self, intent: Intent, registered: Intent) -> Intent:
        """Return the intent that also changes the registry."""
        protocol = registered.protocol and merged_protocol(
            registered.protocol, intent.protocol or registered.protocol
        )
        return replace(
            intent,
            protocol=protocol or intent.protocol,
            domains=(*intent.domains, *registered.domains),
            parameters=registered.parameters,
            revives=True,
        )

    def _with_ids(self, latest: Snapshot, adds: list[Add]) -> tuple[list[Add], tuple[Txn, ...]]:
        """Return files whose fragments and rows get ids of the table (BRA-22, BRA-23).

        With column files, the ids of fragments are given here, so that all files of a fragment get
        the same one. Then the second value records the highest.
        """
        store = self.context.store
        if gives_row_ids(latest.protocol, latest.properties):
            adds = [self._without_row_ids(add) for add in adds]
        before = highest_fragment_id(store, self.base)
        if not self.net.has_columns:
            return [_without_fragment_id(add, before) for add in adds], ()
        shift = highest_fragment_id(store, latest) - before
        given = []
        highest = before + shift
        for add in adds:
            text = (add.tags or {}).get(ID_TAG)
            number = int(text) if text is not None and valid_id(text) else None
            if number is not None and number > before:
                number += shift
                add = _with_fragment_id(add, number)
            highest = max(highest, -1 if number is None else number)
            given.append(add)
        numbered = []
        for add in given:
            if not valid_id((add.tags or {}).get(ID_TAG)):
                highest += 1
                add = _with_fragment_id(add, highest)
            numbered.append(add)
        mark = Txn(app_id=ID_APP, version=highest, last_updated=self.context.effects.now_ms())
        return numbered, (mark,) if highest >= 0 else ()

    def _without_row_ids(self, add: Add) -> Add:
        if canonical_key(add.path) in self.net.known:
            return add
        return add.model_copy(update={"base_row_id": None, "default_row_commit_version": None})

    def _without_stamps(self, metadata: Metadata, latest: Snapshot) -> Metadata:
        """Return metadata that does not say since when the branch has in-commit timestamps."""
        if latest.is_active("inCommitTimestamp"):
            return metadata
        kept = {k: v for k, v in metadata.configuration.items() if k not in STAMPED_SINCE}
        return metadata.model_copy(update={"configuration": kept})

    def _domains(self, latest: Snapshot) -> tuple[DomainMetadata, ...]:
        """Return the domains that the branch changed; raise if the table changed one of them."""
        found = []
        before, now = self.base.controls.domains, latest.controls.domains
        for name, domain in self.tip.controls.domains.items():
            is_own = is_registry(name) or name in (SEAL, ROW_TRACKING_DOMAIN)
            if is_own or _same(domain, before.get(name)):
                continue
            if _same(domain, now.get(name)):
                continue
            if not _same(before.get(name), now.get(name)):
                raise self._conflict(f"set the metadata of the domain {name}", rule="CON-16")
            found.append(domain)
        return tuple(found)

    def _changes(self) -> tuple[Cdc, ...] | None:
        """Return files with the changes of rows; None if adds and removes show them (BRA-21).

        New values in column files of older fragments are changes, too.

        An empty result means that no row is different.
        """
        if self._cdc is not None:
            return self._cdc
        net = self.net
        rewritten = net.gone.num_rows and net.came.num_rows
        if self.moves_only or not (rewritten or self._replaces_values):
            return None
        if not (records_changes(self.tip) or records_changes(self.base)):
            return None
        view = BranchStore.of(self.context.store, self.branch.chain)
        diff = plan_diff(view, self.base, self.tip, engine=self.context.engine)
        layout = change_layout(self.tip, self.tip.schema)
        schema = arrow_schema(layout.schema)
        batches = (
            batch.select(schema.names).cast(schema) for batch in diff.to_batches() if batch.num_rows
        )
        self._cdc = tuple(write_changes(self.context, batches, layout))
        return self._cdc

    def discard(self) -> None:
        """Delete the files that were written; a failure is a warning."""
        cdc, self._cdc = self._cdc or (), None
        if cdc:
            discard_changes(self.context.store, cdc)
        self._discard_united()

    def _discard_united(self) -> None:
        united, self._united = self._united, None
        if united is not None and united.vector_files:
            tidied(lambda: self.context.store.delete(list(united.vector_files)))

    def landed(self, intent: Intent) -> None:
        """Keep the files: the commit refers to them."""
        self._cdc = self._united = None


def merged_metadata(base: Metadata, tip: Metadata, latest: Metadata, conflict: Any) -> Metadata:
    """Return the metadata of a table with the changes of a branch. Pure.

    Each value is that of the side that changed it. `conflict` makes the error if both did, in
    different ways.
    """

    def chosen(name: str, before: Any, ours: Any, theirs: Any) -> Any:
        if ours in (before, theirs):
            return theirs
        if theirs == before:
            return ours
        raise conflict(f"changed {name}, which the branch changed, too,", rule="CON-2")

    values: dict[str, Any] = {
        name: chosen(name, *(getattr(one, name) for one in (base, tip, latest)))
        for name in type(latest).model_fields
        if name not in ("configuration", "created_time", "id")
    }
    sides: list[Mapping[str, Any]] = [one.configuration for one in (base, tip, latest)]
    configuration = {}
    for name in dict.fromkeys(key for side in reversed(sides) for key in side):
        value = chosen(name, *(side.get(name) for side in sides))
        if value is not None:
            configuration[name] = value
    return latest.model_copy(update={**values, "configuration": configuration})


def _all_commits(store: Any, snapshot: Snapshot, since: int) -> list[Commit]:
    """Return the commits of versions from `since` to a snapshot's; raise if one is missing.

    Raises
    ------
    NotFoundError
        A commit was cleaned up.
    """
    found = list_commits(store, snapshot, since=since)
    missing = set(range(since, snapshot.version + 1)) - {file.version for file in found}
    if missing:
        raise NotFoundError(
            path=snapshot.root,
            version=min(missing),
            reason="a commit after the base of the branch is missing, so it cannot be checked for "
            "conflicts",
        )
    return read_commits(store, found)


def _is_blind(commit: Commit) -> bool:
    """Return whether a commit read no rows: a blind append, or one without changes of rows."""
    rows = file_rows([commit])
    if not rows.num_rows or not pc.any(rows["data_change"]).as_py():
        return True
    return commit.info is not None and commit.info.is_blind_append is True


def _without_fragment_id(add: Add, before: int) -> Add:
    """Return a file without the id of a fragment that the branch gave it."""
    text = (add.tags or {}).get(ID_TAG)
    if text is None or not valid_id(text) or int(text) <= before:
        return add
    tags = {name: value for name, value in (add.tags or {}).items() if name != ID_TAG}
    return add.model_copy(update={"tags": tags or None})


def _with_fragment_id(add: Add, number: int) -> Add:
    return add.model_copy(update={"tags": {**(add.tags or {}), ID_TAG: str(number)}})


def _listed(text: str | None) -> set[str]:
    """Return the columns that a column file of a table that was read gives."""
    return set() if text is None else set(orjson.loads(text))


def _restatement(before: Add, after: Add) -> dict[str, Any]:
    """Return what a branch changed in the `add` of a file: statistics, and its list of columns."""
    change: dict[str, Any] = {} if after.stats == before.stats else {"stats": after.stats}
    if (after.tags or {}).get(FIELDS_TAG) != (before.tags or {}).get(FIELDS_TAG):
        change["tags"] = after.tags
    return change


def _same(one: DomainMetadata | None, other: DomainMetadata | None) -> bool:
    texts = [None if d is None or d.removed else d.configuration for d in (one, other)]
    return texts[0] == texts[1]


def _normal(base: Snapshot) -> Metadata:
    """Return metadata with deletion vectors enabled, if the first use of one enables them."""
    if not brings_vectors(base.properties):
        return base.metadata
    return with_vectors(base.protocol, base.metadata)[1]


def _adds_only(base: Snapshot, metadata: Metadata) -> bool:
    """Return whether metadata only adds what binds no writer, or enables deletion vectors."""
    return any(is_additive(one, metadata) for one in (base.metadata, _normal(base)))


def _forbids(base: Snapshot, metadata: Metadata) -> bool:
    """Return whether metadata may forbid rows that the base permitted."""
    return all(tightens(one, metadata) for one in (base.metadata, _normal(base)))
