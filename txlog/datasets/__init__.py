"""Data sets for training: numbered commits, training sets by tags, lineage, differences.

    from txlog.datasets import Catalog

    catalog = Catalog("datasets")
    intents = catalog.create("intents", "TEXT_INTENT", "in/001.csv", tags={"category": "test set"})
    intents.update("in/002.csv", "More examples", tags={"category": "training set"})
    asked = intents.prepare(tags={"category": "training set"})
    made = intents.fetch(asked.version_hash, wait_s=60)
    for batch in made.loader(batch_size=256): …

One folder of Delta tables and files holds everything; any number of processes may use it at once.
Rules: spec/datasets.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.base.lazy import lazy_names

if TYPE_CHECKING:
    from txlog.datasets.catalog import Catalog
    from txlog.datasets.dataset import Dataset
    from txlog.datasets.diff import Diff
    from txlog.datasets.limits import Limits
    from txlog.datasets.lineage import Edge, Graph, Node
    from txlog.datasets.prepare import InlineRunner, Runner, ThreadRunner
    from txlog.datasets.sources import Sources
    from txlog.datasets.training_set import TrainingSet
    from txlog.datasets.types import register
    from txlog.datasets.types.base import DatasetType
    from txlog.datasets.values import Code, Commit, Failure, Input, Part, Summary

__all__ = [
    "Catalog",
    "Code",
    "Commit",
    "Dataset",
    "DatasetType",
    "Diff",
    "Edge",
    "Failure",
    "Graph",
    "InlineRunner",
    "Input",
    "Limits",
    "Node",
    "Part",
    "Runner",
    "Sources",
    "Summary",
    "ThreadRunner",
    "TrainingSet",
    "register",
]

_HOMES = {
    "Catalog": "catalog",
    "Code": "values",
    "Commit": "values",
    "Dataset": "dataset",
    "DatasetType": "types.base",
    "Diff": "diff",
    "Edge": "lineage",
    "Failure": "values",
    "Graph": "lineage",
    "InlineRunner": "prepare",
    "Input": "values",
    "Limits": "limits",
    "Node": "lineage",
    "Part": "values",
    "Runner": "prepare",
    "Sources": "sources",
    "Summary": "values",
    "ThreadRunner": "prepare",
    "TrainingSet": "training_set",
    "register": "types",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES, __all__)
