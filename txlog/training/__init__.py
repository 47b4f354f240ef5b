"""Training: batches of a table's rows, data sets, and a service for them.

    from txlog.training import Datasets, Loader, Shuffle, Vector

    views = {"v": Vector("float32", 16)}
    loader = Loader("clicks", batch_size=1024, shuffle=Shuffle(seed=7), views=views)
    for batch in loader: …       # {"v": array of (1024, 16), …}: one epoch
    state = loader.state_dict()  # goes on from the exact row, on any number of ranks

    datasets = Datasets("datasets")
    intents = datasets.create("intents", "TEXT_INTENT", "in/001.csv", tags={"category": "test set"})
    intents.update("in/002.csv", "More examples", tags={"category": "training set"})
    asked = intents.prepare(tags={"category": "training set"})
    made = intents.fetch(asked.version_hash, wait_s=60)
    for batch in made.loader(batch_size=256): …

`txlog datasets serve FOLDER` or `serve(datasets)` starts a service; `connect(url)` is its client.
The extra `serve` has FastAPI, uvicorn and httpx; the extra `grpc` has gRPC. Rules: spec/loader.md
and spec/datasets.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txlog.base.lazy import lazy_names

if TYPE_CHECKING:
    from txlog.extend import Cache
    from txlog.training.datasets.access import AccessError
    from txlog.training.datasets.dataset import Dataset
    from txlog.training.datasets.diff import Diff
    from txlog.training.datasets.folder import Datasets
    from txlog.training.datasets.ledger import is_ledger
    from txlog.training.datasets.limits import Limits
    from txlog.training.datasets.lineage import Direction, Edge, Graph, Node
    from txlog.training.datasets.prepare import InlineRunner, Runner, ThreadRunner
    from txlog.training.datasets.sources import Sources
    from txlog.training.datasets.steps import Run, Step
    from txlog.training.datasets.training_set import TrainingSet
    from txlog.training.datasets.types import register
    from txlog.training.datasets.types.base import DatasetType
    from txlog.training.datasets.values import Access, Code, Commit, Failure, Input, Part, Summary
    from txlog.training.loader.batches import Even
    from txlog.training.loader.choices import ClassWeights, RowFunction, class_weights
    from txlog.training.loader.images import Image
    from txlog.training.loader.large import Blobs
    from txlog.training.loader.loader import Loader
    from txlog.training.loader.mixture import Mixture
    from txlog.training.loader.order import Shuffle
    from txlog.training.loader.splits import split_where
    from txlog.training.loader.views import Number, Ragged, RaggedArray, Text, Vector, View
    from txlog.training.loader.windows import Windows
    from txlog.training.service.app import create_app
    from txlog.training.service.auth import (
        Authenticator,
        Principal,
        TokenFile,
        new_token,
        token_entry,
    )
    from txlog.training.service.client import RemoteDataset, RemoteDatasets, connect
    from txlog.training.service.rpc import create_server
    from txlog.training.service.run import serve

_LOADER = {
    "Blobs": "loader.large",
    "Cache": "loader.loader",
    "ClassWeights": "loader.choices",
    "Even": "loader.batches",
    "Image": "loader.images",
    "Loader": "loader.loader",
    "Mixture": "loader.mixture",
    "Number": "loader.views",
    "Ragged": "loader.views",
    "RaggedArray": "loader.views",
    "RowFunction": "loader.choices",
    "Shuffle": "loader.order",
    "Text": "loader.views",
    "Vector": "loader.views",
    "View": "loader.views",
    "Windows": "loader.windows",
    "class_weights": "loader.choices",
    "split_where": "loader.splits",
}
_DATASETS = {
    "Access": "datasets.values",
    "Code": "datasets.values",
    "Commit": "datasets.values",
    "Dataset": "datasets.dataset",
    "DatasetType": "datasets.types.base",
    "Datasets": "datasets.folder",
    "Diff": "datasets.diff",
    "Direction": "datasets.lineage",
    "Edge": "datasets.lineage",
    "Failure": "datasets.values",
    "Graph": "datasets.lineage",
    "InlineRunner": "datasets.prepare",
    "Input": "datasets.values",
    "Limits": "datasets.limits",
    "Node": "datasets.lineage",
    "Part": "datasets.values",
    "Run": "datasets.steps",
    "Runner": "datasets.prepare",
    "Sources": "datasets.sources",
    "Step": "datasets.steps",
    "Summary": "datasets.values",
    "ThreadRunner": "datasets.prepare",
    "TrainingSet": "datasets.training_set",
    "is_ledger": "datasets.ledger",
    "register": "datasets.types",
}
_SERVICE = {
    "AccessError": "datasets.access",
    "Authenticator": "service.auth",
    "Principal": "service.auth",
    "RemoteDataset": "service.client",
    "RemoteDatasets": "service.client",
    "TokenFile": "service.auth",
    "connect": "service.client",
    "create_app": "service.app",
    "create_server": "service.rpc",
    "new_token": "service.auth",
    "serve": "service.run",
    "token_entry": "service.auth",
}

__all__ = [
    "Access",
    "AccessError",
    "Authenticator",
    "Blobs",
    "Cache",
    "ClassWeights",
    "Code",
    "Commit",
    "Dataset",
    "DatasetType",
    "Datasets",
    "Diff",
    "Direction",
    "Edge",
    "Even",
    "Failure",
    "Graph",
    "Image",
    "InlineRunner",
    "Input",
    "Limits",
    "Loader",
    "Mixture",
    "Node",
    "Number",
    "Part",
    "Principal",
    "Ragged",
    "RaggedArray",
    "RemoteDataset",
    "RemoteDatasets",
    "RowFunction",
    "Run",
    "Runner",
    "Shuffle",
    "Sources",
    "Step",
    "Summary",
    "Text",
    "ThreadRunner",
    "TokenFile",
    "TrainingSet",
    "Vector",
    "View",
    "Windows",
    "class_weights",
    "connect",
    "create_app",
    "create_server",
    "is_ledger",
    "new_token",
    "register",
    "serve",
    "split_where",
    "token_entry",
]

_find, __dir__ = lazy_names(__name__, _LOADER | _DATASETS | _SERVICE, __all__)


def __getattr__(name: str) -> Any:
    if name not in _SERVICE:
        return _find(name)
    from txlog.training.service.extra import needing

    with needing("grpc" if name == "create_server" else "serve"):
        return _find(name)
