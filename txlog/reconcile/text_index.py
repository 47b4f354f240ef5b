"""Which of many texts some other texts are, when they come in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.reconcile.files import Hashes, text_hashes

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TextIndex:
    """The places of different texts, found by hashes and compared by the texts themselves.

    Arrow would hash all texts again for each part that is looked up. Here a text needs 16 bytes
    beside itself.

    Parameters
    ----------
    texts
        A `string` array without nulls.
    """

    def __init__(self, texts: pa.Array) -> None:
        self._texts = texts
        hashes = text_hashes(texts)
        self._order = np.argsort(hashes)
        self._hashes = hashes[self._order]

    def __len__(self) -> int:
        return len(self._texts)

    def places(self, texts: pa.Array) -> NDArray[np.int64]:
        """Return the place of each text, or -1. `texts` is a `string` array without nulls."""
        found = np.full(len(texts), -1, np.int64)
        if not len(self) or not len(texts):
            return found
        hashes = text_hashes(texts)
        first = np.searchsorted(self._hashes, hashes)
        at = np.minimum(first, len(self) - 1)
        asked = np.flatnonzero(self._hashes[at] == hashes)
        places = self._order[at[asked]]
        same = pc.equal(self._texts.take(arrow_array(places)), texts.take(arrow_array(asked)))
        is_same = numpy_array(same)
        found[asked[is_same]] = places[is_same]
        # The hash is that of another text, and other texts may have it too.
        others = asked[~is_same]
        if len(others):
            alike = self._with_hashes(np.unique(hashes[others]))
            equal = pc.index_in(
                texts.take(arrow_array(others)), value_set=self._texts.take(arrow_array(alike))
            )
            at = numpy_array(pc.fill_null(equal, -1))
            found[others] = np.where(at >= 0, alike[at], -1)
        return found

    def _with_hashes(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the places of all texts that have one of some different hashes."""
        first = np.searchsorted(self._hashes, hashes, "left")
        counts = np.searchsorted(self._hashes, hashes, "right") - first
        begins = np.repeat(first - (np.cumsum(counts) - counts), counts)
        places: NDArray[np.int64] = self._order[begins + np.arange(counts.sum())]
        return places
