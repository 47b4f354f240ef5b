"""Batches as arrays of JAX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError

if TYPE_CHECKING:
    from txlog.training.loader.loader import Loader


def jax_batches(loader: Loader, sharding: Any) -> Iterator[Any]:
    """Yield the batches of a loader as dictionaries of JAX arrays; see `Loader.jax`."""
    for batch in loader:
        if not isinstance(batch, dict):
            raise InvalidInputError(
                argument="transform", reason="a dict of arrays was expected for JAX"
            )
        yield {name: _placed(name, values, sharding) for name, values in batch.items()}


def _placed(name: str, values: Any, sharding: Any) -> Any:
    if not isinstance(values, np.ndarray) or values.dtype == object:
        raise UnsupportedFeatureError(
            features=("jax",),
            field=name,
            reason="JAX arrays cannot hold texts, or rows of different lengths",
            remedy="Give the column another view, such as Ragged(pad=0), or leave it out",
        )
    if values.dtype.kind == "M":
        values = values.view(np.int64)
    if values.dtype == np.int64 and not jax.config.jax_enable_x64 and len(values):
        limits = np.iinfo(np.int32)
        if values.min() < limits.min or values.max() > limits.max:
            raise InvalidInputError(
                argument="views",
                field=name,
                reason="its values do not fit int32, and JAX would cut them off",
                remedy='Set jax.config.update("jax_enable_x64", True)',
            )
        values = values.astype(np.int32)
    if values.dtype == np.float64 and not jax.config.jax_enable_x64:
        values = values.astype(np.float32)
    if sharding is None:
        return jax.device_put(values)
    return jax.make_array_from_process_local_data(sharding, values)
