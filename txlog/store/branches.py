"""A branch of a table as a view of its store: main's log up to a version, then the branch's own.

Each file of a log has its version in its name. Files up to the branch's base are main's; later ones
lie below `_delta_log/_branches/<id>/_delta_log`. All other files are those of the table. Rules:
spec/branches.md, BRA-1 to BRA-4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.base.threads import cached_property
from txlog.log.names import LOG_FOLDER, commit_name, parse_name
from txlog.store.base import (
    OWN_OPTIONS,
    ObjectInfo,
    OpenOutput,
    Put,
    PutIfAbsent,
    Store,
    WrappingStore,
)

BRANCH = f"{OWN_OPTIONS}branch"
"""The storage option that opens a branch: its name, or its name with its id and base."""
BRANCHES_FOLDER = f"{LOG_FOLDER}/_branches"
MAIN = "main"  # What the table itself is called; no branch has this name.

_LOG = f"{LOG_FOLDER}/"
_HINT = "_last_checkpoint"
_SIDECARS = "_sidecars/"
_ID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_TOKEN = re.compile(rf"(?P<name>.+)@(?P<id>{_ID})@(?P<base>\d{{1,19}})")
# Lone surrogates are no Unicode text, so no registry can hold them.
_NAME = re.compile(
    r"(?!\d+$)[^\s\x00-\x1f@\ud800-\udfff]"
    r"(?:[^\x00-\x1f@\ud800-\udfff]{0,198}[^\s\x00-\x1f@\ud800-\udfff])?"
)

Listed = TypeVar("Listed", bound=tuple[Any, ...])  # A name with its size and time.


@dataclass(frozen=True, slots=True)
class Chain:
    """The log of a branch: the commits after version `base` of its table."""

    name: str
    id: str  # A UUID.
    base: int

    @property
    def folder(self) -> str:
        """The folder of its log, relative to the table's root."""
        return f"{BRANCHES_FOLDER}/{self.id}/{LOG_FOLDER}"

    @property
    def token(self) -> str:
        """The value of the storage option that opens it without a look at the table."""
        return f"{self.name}@{self.id}@{self.base}"


def require_branch_name(name: object, *, argument: str = "name") -> str:
    """Return the name of a branch; raise if no branch can have it. `argument` had the name.

    Raises
    ------
    InvalidInputError
        It is not a string, is empty, too long, a number, `main`, contains `@`, a control
        character or a lone surrogate, or begins or ends with a space.
    """
    if isinstance(name, str) and _NAME.fullmatch(name) and name.casefold() != MAIN:
        return name
    kind = InvalidInputError if isinstance(name, str) else InvalidTypeError
    raise kind(
        argument=argument,
        reason=f"{name!r} is not the name of a branch",
        remedy="Use text of at most 200 characters without @ that is not a number and not main",
    )


def is_branch_id(text: str) -> bool:
    """Return whether a text is a UUID, as the ids of branches are."""
    return re.fullmatch(_ID, text) is not None


Find = Callable[[Store, str], Chain]
"""A function that finds a branch by its name in a table's registry, or raises `NotFoundError`."""

_finders: list[Find] = []


def finds_branches(find: Find) -> Find:
    """Register the function that finds branches by their names: it reads logs, as later rooms do.

    A store is opened without a request. So the name is looked up at the first use of the log.
    """
    _finders[:] = [find]
    return find


def branch_option(options: Mapping[str, Any]) -> str | None:
    """Return the branch that storage options choose, or None.

    Raises
    ------
    InvalidInputError
        No branch can have such a name.
    """
    given = options.get(BRANCH)
    if given is None or (isinstance(given, str) and _TOKEN.fullmatch(given)):
        return given
    return require_branch_name(given)


def with_branch(options: Mapping[str, Any] | None, branch: str | None) -> Mapping[str, Any] | None:
    """Return storage options that choose a branch; None: they stay.

    Raises
    ------
    InvalidInputError
        No branch can have such a name, or the options choose another one.
    """
    if branch is None or (options is not None and not isinstance(options, Mapping)):
        return options
    name = require_branch_name(branch, argument="branch")
    given = branch_option(options or {})
    if given is not None and given.partition("@")[0] != name:
        raise InvalidInputError(
            argument="branch",
            reason=f"the storage option {BRANCH} chooses another branch, {given!r}",
            remedy="Pass only one of them",
        )
    return {**(options or {}), BRANCH: given or name}


def without_branch(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return storage options for another table, or for the table itself."""
    return {name: value for name, value in options.items() if name != BRANCH}


def chain_of(store: Store) -> Chain | None:
    """Return the branch that a store shows; None for a table itself."""
    found: Chain | None = getattr(store, "chain", None)
    return found


def branch_name(store: Store) -> str | None:
    """Return the name of the branch that a store shows, without a request; None for a table."""
    found: str | None = getattr(store, "branch", None)
    return found


def branch_id(store: Store) -> str | None:
    """Return the id of the branch that a store shows; None for a table itself."""
    branch = chain_of(store)
    return None if branch is None else branch.id


def other_branch(id: str | None, store: Store) -> str | None:
    """Name the branch or table of an id, and that of a store, if they differ; else None.

    `id` is that of a branch, or None for the table itself.
    """
    if id == branch_id(store):
        return None
    name = branch_name(store)
    given = "the table itself" if id is None else f"the branch with id {id}"
    return f"{given}, and this is {'the table itself' if name is None else f'the branch {name!r}'}"


def require_main(store: Store, what: str) -> None:
    """Raise if a store shows a branch, for what only the table itself can do.

    Raises
    ------
    UnsupportedFeatureError
        It shows a branch. `what` names the operation.
    """
    name = branch_name(store)
    if name is not None:
        raise UnsupportedFeatureError(
            path=store.root,
            features=("branches",),
            reason=f"{what} is not possible on a branch, and this is the branch {name!r}",
            remedy="Open the table itself, without branch=, and call it there",
        )


@dataclass(frozen=True)
class BranchStore(WrappingStore):
    """The store of a branch: that of its table, with the branch's log after the base."""

    inner: Store
    given: str  # The value of the storage option.

    @classmethod
    def of(cls, main: Store, chain: Chain) -> BranchStore:
        """Return the store of a branch of a table."""
        return cls(main, chain.token)

    @property
    def branch(self) -> str:
        """The name of the branch."""
        found = _TOKEN.fullmatch(self.given)
        return self.given if found is None else found["name"]

    @cached_property
    def chain(self) -> Chain:
        """The branch's id and base. A plain name is looked up once.

        Raises
        ------
        NotFoundError
            The table has no open branch of this name.
        """
        found = _TOKEN.fullmatch(self.given)
        if found is not None:
            return Chain(found["name"], found["id"], int(found["base"]))
        return _finders[0](self.inner, self.given)

    @property
    def ratifies(self) -> bool:  # type: ignore[override]
        """False: a catalog decides the commits of the table, and those of a branch are files."""
        return False

    def latest_version(self) -> int | None:
        """Return None, as for `ratifies`."""
        return None

    @property
    def options(self) -> Mapping[str, Any]:
        """The options with which the branch is opened; once it is known, with its id and base."""
        chain = self.__dict__.get("chain")
        return {**self.inner.options, BRANCH: self.given if chain is None else chain.token}

    def _name(self, path: str) -> str | None:
        """Return the name of a file of the log, or None for other files."""
        return path[len(_LOG) :] if path.startswith(_LOG) else None

    def _is_mains(self, name: str) -> bool:
        """Return whether a file of the log belongs to a version of main."""
        file = parse_name(name)
        return file is not None and file.last_version <= self.chain.base

    def _at(self, path: str) -> str:
        """Return where a file is or will be."""
        name = self._name(path)
        if name is None or name.startswith("_branches/") or self._is_mains(name):
            return path
        return f"{self.chain.folder}/{name}"

    def _places(self, path: str) -> list[str]:
        """Return where a file may be: a branch's checkpoints may share sidecars of main's."""
        name = self._name(path)
        return [self._at(path), path] if name and name.startswith(_SIDECARS) else [self._at(path)]

    def _found(self, path: str, ask: Callable[[str], Listed]) -> Listed:
        *first, last = self._places(path)
        for place in first:
            try:
                return ask(place)
            except NotFoundError:
                continue
        return ask(last)

    def read(self, path: str) -> bytes:
        """Return a whole file. Of two hints, main's counts only if it is about a version of main.

        Raises
        ------
        NotFoundError
            There is no such file.
        """
        if self._name(path) == _HINT:
            try:
                return self.inner.read(self._at(path))
            except NotFoundError:
                data = self.inner.read(path)
            if not _is_hint_until(data, self.chain.base):
                raise NotFoundError(path=path, reason="the hint is about a version after the base")
            return data
        return self._found(path, lambda place: (self.inner.read(place),))[0]

    def read_many(self, files: Sequence[tuple[str, int]]) -> Iterator[bytes]:
        """Yield whole files in order."""
        if any(len(self._places(path)) > 1 for path, _ in files):
            return super().read_many(files)
        return self.inner.read_many([(self._at(path), size) for path, size in files])

    def info(self, path: str) -> ObjectInfo:
        """Return the name, size and time of a file."""
        return self._found(path, self.inner.info)

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading."""
        places = self._places(path)
        if len(places) > 1:  # With a size, a store says only later that there is no file.
            found = self._found(path, lambda place: (place, self.inner.info(place)))
            places = [found[0]]
        return self.inner.open_input(places[0], size=size)

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        if folder.strip("/") != LOG_FOLDER:
            yield from self.inner.list_after(self._folder(folder), name)
            return
        yield from self._joined(self.inner.list_after, name)

    def list_briefly(self, folder: str, name: str) -> Iterable[tuple[str, int, int | None]]:
        """Return the files of `list_after`."""
        if folder.strip("/") != LOG_FOLDER:
            return self.inner.list_briefly(self._folder(folder), name)
        return self._joined(self.inner.list_briefly, name)

    def _joined(self, tell: Callable[[str, str], Iterable[Listed]], name: str) -> list[Listed]:
        """Return main's files of versions up to the base, and the branch's later ones."""
        beyond = commit_name(self.chain.base + 1)[:20]
        found: list[Listed] = []
        if name <= beyond:
            for listed in tell(LOG_FOLDER, name):
                if listed[0] >= beyond:  # Names ascend like the versions with which they begin.
                    break
                if self._is_mains(listed[0]):
                    found.append(listed)
        own = tell(self.chain.folder, max(name, beyond))
        return sorted([*found, *(one for one in own if not self._is_mains(one[0]))])

    def _folder(self, folder: str) -> str:
        return self._at(f"{folder.rstrip('/')}/")[:-1]

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder; of the log, only those of the branch itself."""
        if folder.strip("/") == LOG_FOLDER:
            return self.inner.list_tree(self.chain.folder)
        return self.inner.list_tree(self._folder(folder) if folder else folder)

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file atomically; return whether it was created or existed before.

        Raises
        ------
        CommitConflictError
            It would be the first commit of a branch that is closed.
        """
        return self._put(self.inner.put_if_absent, path, data)

    def _put(self, put: PutIfAbsent, path: str, data: bytes) -> Put:
        if self._name(path) == commit_name(self.chain.base + 1):
            self._require_open()
        return put(self._at(path), data)

    def _require_open(self) -> None:
        """Raise if the branch is closed: a vacuum may have deleted all that its log said of it."""
        try:
            is_open = _finders[0](self.inner, self.branch).id == self.chain.id
        except NotFoundError:
            is_open = False
        if not is_open:
            raise CommitConflictError(
                version=self.chain.base,
                rule="CON-16",
                path=self.root,
                reason=f"the branch {self.branch!r} was published or discarded",
                remedy="Nothing was committed. Open the table, or another branch of it",
            )

    @contextmanager
    def attempts(self) -> Iterator[PutIfAbsent]:
        """Yield `put_if_absent`, to call until a name is free."""
        with self.inner.attempts() as put:
            yield lambda path, data: self._put(put, path, data)

    def precedence(self, *, briefly: bool = False) -> AbstractContextManager[bool]:
        """Let other writers of the table and its branches delay their commits, if possible."""
        return self.inner.precedence(briefly=briefly)

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        """Return a new file to be written in a `with`."""
        return self.inner.open_output(self._at(path))

    @contextmanager
    def new_files(self) -> Iterator[OpenOutput]:
        """Open new files."""
        with self.inner.new_files() as open_output:
            yield lambda path: open_output(self._at(path))

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file."""
        self.inner.write_new(self._at(path), data)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one."""
        self.inner.replace(self._at(path), data)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root.

        Raises
        ------
        UnsupportedFeatureError
            A file is of main's log. Nothing was deleted.
        """
        places = [self._at(path) for path in paths]
        if any(
            place.startswith(_LOG) and not place.startswith(BRANCHES_FOLDER) for place in places
        ):
            require_main(self, "deleting files of the table's log")
        self.inner.delete(places)

    def move(self, places: Sequence[tuple[str, str]]) -> None:
        """Move files to new places, durably."""
        self.inner.move([(self._at(path), self._at(target)) for path, target in places])

    def local_path(self, path: str) -> str | None:
        """Return the path by which other libraries can open a file on a local disk; else None."""
        return self.inner.local_path(self._at(path))

    def resolve(self, path: str) -> str:
        """Return the absolute path or URI of a file."""
        return self.inner.resolve(self._at(path))


def _is_hint_until(data: bytes, base: int) -> bool:
    """Return whether `_last_checkpoint` is about a version up to a base."""
    import orjson

    try:
        node = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    version = node.get("version") if isinstance(node, dict) else None
    return type(version) is int and version <= base


def closed_chains(open_ids: Iterable[str], infos: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
    """Yield the files of the logs of branches that are not open, of files below the table. Pure."""
    known = frozenset(open_ids)
    below = f"{BRANCHES_FOLDER}/"
    for info in infos:
        if info.name.startswith(below) and info.name[len(below) :].partition("/")[0] not in known:
            yield info
