"""Batches as tensors of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from txlog.errors import InvalidInputError, UnsupportedFeatureError
from txlog.loader.views import RaggedArray

if TYPE_CHECKING:
    from txlog.loader.loader import Loader


def tf_dataset(loader: Loader) -> Any:
    """Return the batches of a loader as a `tf.data.Dataset`; see `Loader.tf`."""
    sample = loader.empty_batch()
    if not isinstance(sample, dict):
        raise InvalidInputError(
            argument="transform",
            reason="a dict of arrays was expected for TensorFlow",
            remedy="Leave transform out, and use the dataset's map",
        )
    signature = {name: _spec(name, values) for name, values in sample.items()}

    def batches() -> Iterator[dict[str, Any]]:
        for batch in loader:
            yield {name: _tensor(values) for name, values in batch.items()}

    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def _spec(name: str, values: Any) -> Any:
    if isinstance(values, RaggedArray):
        return tf.RaggedTensorSpec(
            (None, None), tf.as_dtype(values.values.dtype), row_splits_dtype=tf.int64
        )
    if values.ndim > 1 and values.dtype == object:
        raise UnsupportedFeatureError(
            features=("tensorflow",),
            field=name,
            reason="images of different sizes are no tensor",
            remedy="Give the view a size: Image(size=(height, width))",
        )
    shape = tuple(length or None for length in values.shape[1:])
    if values.dtype == object:
        return tf.TensorSpec((None, *shape), tf.string)
    kind = np.dtype(np.int64) if values.dtype.kind == "M" else values.dtype
    return tf.TensorSpec((None, *shape), tf.as_dtype(kind))


def _tensor(values: Any) -> Any:
    if isinstance(values, RaggedArray):
        return tf.RaggedTensor.from_row_splits(values.values, values.offsets)
    return values.view(np.int64) if values.dtype.kind == "M" else values
