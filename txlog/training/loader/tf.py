"""Batches as tensors of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.training.loader.images import Image
from txlog.training.loader.views import RaggedArray

if TYPE_CHECKING:
    from txlog.training.loader.loader import Loader


def tf_dataset(loader: Loader) -> Any:
    """Return the batches of a loader as a `tf.data.Dataset`; see `Loader.tf`."""
    sample = loader.empty_batch()
    if not isinstance(sample, dict):
        raise InvalidInputError(
            argument="transform",
            reason="a dict of arrays was expected for TensorFlow",
            remedy="Leave transform out, and use the dataset's map",
        )
    for name, view in loader.views.items():
        if isinstance(view, Image) and view.size is None:
            raise UnsupportedFeatureError(
                features=("tensorflow",),
                field=name,
                reason="images of different sizes cannot be one tensor",
                remedy="Give the view a size: Image((height, width))",
            )
    signature = {name: _spec(values) for name, values in sample.items()}

    def batches() -> Iterator[dict[str, Any]]:
        for batch in loader:
            yield {name: _tensor(values) for name, values in batch.items()}

    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def _spec(values: Any) -> Any:
    if isinstance(values, RaggedArray):
        return tf.RaggedTensorSpec(
            (None, None), tf.as_dtype(values.values.dtype), row_splits_dtype=tf.int64
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
