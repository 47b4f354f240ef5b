"""Lineage: graphs of the inputs of commits and training sets. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.base.texts import without_secrets
from txlog.training.datasets.values import ANSWERED, Commit, Input

DATASET = "txlog-dataset:"
"""Before a data set's uuid, in the URI of an input that is a commit."""
TRAINING_SET = "txlog-training-set:"
"""Before a version hash, in the URI of an input that is a training set."""

NodeKind = Literal["commit", "training set", "table", "file", "code"]
Direction = Literal["up", "down"]


@runtime_checkable
class Picked(Protocol):
    """The facts about a training set for lineage."""

    @property
    def version_hash(self) -> str:
        """The training set's hash or names."""
        ...

    @property
    def commits(self) -> tuple[Commit, ...]:
        """The commits from which it is made."""
        ...


@dataclass(frozen=True)
class Node:
    """A commit, a training set, a table at a version, a file, or code."""

    __pydantic_config__ = ANSWERED
    id: str
    kind: NodeKind
    label: str
    digest: str | None = None
    purged: bool = False
    user: str | None = None
    """Who made the commit, if it is one and says so."""

    @property
    def title(self) -> str:
        """The label, and who made it."""
        return self.label if self.user is None else f"{self.label}, by {self.user}"


@dataclass(frozen=True)
class Edge:
    """`target` was made from `source`."""

    __pydantic_config__ = ANSWERED
    source: str
    target: str
    role: str


@dataclass(frozen=True)
class Graph:
    """Nodes, and edges from inputs to results."""

    __pydantic_config__ = ANSWERED
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def to_json(self) -> dict[str, Any]:
        """Return `{"nodes": […], "edges": […]}`."""
        return {
            "nodes": [asdict(node) for node in self.nodes],
            "edges": [asdict(edge) for edge in self.edges],
        }

    def to_dot(self) -> str:
        """Return the graph in the language of Graphviz."""
        shapes = {"commit": "box", "training set": "box3d", "table": "cylinder", "file": "note"}
        lines = ["digraph lineage {", "  rankdir=LR;"]
        lines += [
            f"  {_quoted(node.id)} [label={_quoted(node.title)}, "
            f"shape={shapes.get(node.kind, 'component')}];"
            for node in self.nodes
        ]
        lines += [
            f"  {_quoted(edge.source)} -> {_quoted(edge.target)} [label={_quoted(edge.role)}];"
            for edge in self.edges
        ]
        return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def as_input(given: object) -> Input:
    """Return an input of a commit from a caller's URI, table, commit or training set.

    Raises
    ------
    InvalidTypeError
        It is none of these.
    """
    from txlog import Table

    match given:
        case Input():
            return given
        case str():
            return Input(without_secrets(given))
        case Table():
            return Input(without_secrets(given.uri), version=given.version)
        case Commit():
            return Input(f"{DATASET}{given.dataset}", version=given.commit_id, digest=given.digest)
        case Picked():
            return Input(f"{TRAINING_SET}{given.version_hash}", digest=given.version_hash)
    raise InvalidTypeError(
        argument="inputs",
        reason=f"a URI, table, commit or training set was expected, not {type(given).__name__}",
        remedy="Pass text, or an Input(uri, role, version, digest)",
    )


class Found:
    """The data of a search for lineage: the commits and training sets of all data sets."""

    def __init__(self, commits: Iterable[tuple[str, Commit]], sets: Iterable[Picked]) -> None:
        """Take the commits, each with the name of its data set, and the training sets."""
        self.names: dict[str, str] = {}
        self.commits: dict[str, Commit] = {}
        for name, commit in commits:
            self.names[commit.dataset] = name
            self.commits[_commit_id(commit.dataset, commit.commit_id)] = commit
        self.sets = {f"{TRAINING_SET}{one.version_hash}": one for one in sets}
        self._children: dict[str, list[tuple[Edge, Node]]] | None = None

    def node(self, node_id: str, given: Input | None = None) -> Node:
        """Return a node by its id. `given` provides facts if the node is not known."""
        digest = None if given is None else given.digest
        if node_id.startswith("code:"):
            return Node(node_id, "code", node_id.removeprefix("code:"))
        if node_id.startswith(TRAINING_SET):
            version_hash = node_id.removeprefix(TRAINING_SET)
            return Node(node_id, "training set", version_hash[:12], version_hash)
        if node_id.startswith(DATASET):
            uuid, _, number = node_id.removeprefix(DATASET).partition("@")
            known = self.commits.get(node_id)
            label = f"{self.names.get(uuid, uuid)} @ {number}"
            if known is None:
                return Node(node_id, "commit", label, digest)
            return Node(node_id, "commit", label, known.digest, known.purged, known.user)
        is_table = given is not None and given.version is not None
        return Node(node_id, "table" if is_table else "file", node_id, digest)

    def above(self, node_id: str) -> Iterator[tuple[Edge, Node]]:
        """Yield what a node was made from."""
        training_set = self.sets.get(node_id)
        if training_set is not None:
            for picked in training_set.commits:
                source = _commit_id(picked.dataset, picked.commit_id)
                yield Edge(source, node_id, "picked"), self.node(source)
        commit = self.commits.get(node_id)
        if commit is None:
            return
        for one in commit.inputs:
            source = _input_id(one)
            yield Edge(source, node_id, one.role), self.node(source, one)
        if commit.code is not None:
            version = "" if commit.code.version is None else f"@{commit.code.version}"
            source = f"code:{commit.code.name}{version}"
            yield Edge(source, node_id, "code"), self.node(source)

    def below(self, node_id: str) -> Iterator[tuple[Edge, Node]]:
        """Yield what was made from a node."""
        if self._children is None:
            self._children = {}
            for child in [*self.commits, *self.sets]:
                for edge, _ in self.above(child):
                    self._children.setdefault(edge.source, []).append((edge, self.node(child)))
        yield from self._children.get(node_id, ())


def trace(found: Found, start: str, direction: Direction = "up", depth: int | None = None) -> Graph:
    """Return the graph from a node up to a number of steps; each node is visited once.

    Raises
    ------
    InvalidInputError
        The direction is neither `up` nor `down`.
    """
    if direction not in ("up", "down"):
        raise InvalidInputError(
            argument="direction", reason=f"'up' or 'down' was expected, not {direction!r}"
        )
    step: Callable[[str], Iterator[tuple[Edge, Node]]]
    step = found.above if direction == "up" else found.below
    nodes = {start: found.node(start)}
    edges: dict[Edge, None] = {}
    ring = [start]
    steps = 0
    while ring and (depth is None or steps < depth):
        following = []
        for node_id in ring:
            for edge, node in step(node_id):
                edges[edge] = None
                if node.id not in nodes:
                    nodes[node.id] = node
                    following.append(node.id)
        ring = following
        steps += 1
    return Graph(tuple(nodes.values()), tuple(edges))


def provenance(training_set: Picked) -> Graph:
    """Return a training set's commits and their inputs, from the training set alone."""
    commits = ((commit.dataset, commit) for commit in training_set.commits)
    found = Found(commits, [training_set])
    return trace(found, f"{TRAINING_SET}{training_set.version_hash}")


def node_of(dataset: str, commit: int | str) -> str:
    """Return the id of a node: of a commit, or of a training set if a version hash is given."""
    return f"{TRAINING_SET}{commit}" if isinstance(commit, str) else _commit_id(dataset, commit)


def _commit_id(dataset: str, number: int) -> str:
    return f"{DATASET}{dataset}@{number}"


def _input_id(one: Input) -> str:
    return one.uri if one.version is None else f"{one.uri}@{one.version}"
