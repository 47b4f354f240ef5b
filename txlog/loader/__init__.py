"""Batches for training, straight from a version of a table.

    from txlog.loader import Loader, Shuffle, Vector

    views = {"v": Vector("float32", 16)}
    loader = Loader("clicks", batch_size=1024, shuffle=Shuffle(seed=7), views=views)
    for batch in loader: …       # {"v": array of (1024, 16), …}: one epoch
    state = loader.state_dict()  # goes on from the exact row, on any number of ranks

The order of the rows is that of spec/loader.md.
"""

from __future__ import annotations

from txlog.loader.images import Image
from txlog.loader.loader import Even, Loader
from txlog.loader.order import Shuffle
from txlog.loader.views import Number, Ragged, RaggedArray, Text, Vector, View

__all__ = [
    "Even",
    "Image",
    "Loader",
    "Number",
    "Ragged",
    "RaggedArray",
    "Shuffle",
    "Text",
    "Vector",
    "View",
]
