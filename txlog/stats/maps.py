"""Values out of maps of texts, of which most tables have the same names in each. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from txlog.arrow import arrow_array, arrow_scalar, numpy_array, pc


def entries(maps: pa.MapArray, name: str) -> pa.Array:
    """Return what maps have under a name, the last if there are several; null if there is none.

    Parameters
    ----------
    maps
        Of texts, which may be dictionaries; then what is returned may be one too.
    """
    regular = _regular(maps)
    if regular is None:
        return pc.map_lookup(_plain(maps), arrow_scalar(name), "last")
    names, items = regular
    if name not in names:
        return pa.nulls(len(maps), pa.string())
    last = len(names) - 1 - names[::-1].index(name)
    return items.take(arrow_array(np.arange(last, len(items), len(names))))


def are_there(maps: pa.MapArray, name: str) -> pa.Array:
    """Return which maps have something under a name, be it null."""
    regular = _regular(maps)
    if regular is None:
        return pc.is_valid(pc.map_lookup(_plain(maps), arrow_scalar(name), "all"))
    return pa.repeat(arrow_scalar(name in regular[0]), len(maps))


def _plain(maps: pa.MapArray) -> pa.MapArray:
    is_plain = not pa.types.is_dictionary(maps.type.key_type)
    return maps if is_plain else maps.cast(pa.map_(pa.string(), pa.string()))


def _regular(maps: pa.MapArray) -> tuple[list[str], pa.Array] | None:
    """Return the names that all maps have, in one order, and all values, map by map."""
    if not len(maps) or maps.null_count:
        return None
    offsets = numpy_array(maps.offsets)
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    width = count // len(maps)
    if not width or (np.diff(offsets) != width).any():
        return None
    keys = maps.keys.slice(start, count).dictionary_encode()
    numbers = numpy_array(keys.indices).reshape(len(maps), width)
    if (numbers != numbers[0]).any():
        return None
    names = [keys.dictionary[number].as_py() for number in numbers[0].tolist()]
    return names, maps.items.slice(start, count)


def encoded(texts: pa.Array) -> pa.DictionaryArray:
    """Return texts as a dictionary that has no text but theirs."""
    if not pa.types.is_dictionary(texts.type):
        return texts.dictionary_encode()
    if len(texts.dictionary) > len(texts):
        return texts.dictionary_decode().dictionary_encode()
    used = np.bincount(numpy_array(texts.indices.drop_null()), minlength=len(texts.dictionary)) > 0
    numbers = arrow_array(np.cumsum(used, dtype=np.int32) - 1)
    return pa.DictionaryArray.from_arrays(
        numbers.take(texts.indices), texts.dictionary.filter(arrow_array(used))
    )
