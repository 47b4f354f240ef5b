"""Encoded images, as a column of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.errors import not_installed
from txlog.training.loader.views import Rows, UnfitError, is_bytes


@dataclass(frozen=True)
class Image:
    """Encoded images: an array (n, height, width, channels) of uint8.

    Without `size` the result is an array of objects: each image is an array (height, width,
    channels) in its own size. Pillow decodes images in the loader's threads.

    Parameters
    ----------
    size
        Height and width. Images of other sizes are scaled bilinearly.
    mode
        Pillow's name of the colours: `RGB` has three channels, `L` one, `RGBA` four.
    max_pixels
        Larger images are refused before they are decoded.
    """

    size: tuple[int, int] | None = None
    mode: str = "RGB"
    max_pixels: int = 1 << 26

    def require(self, kind: pa.DataType) -> None:
        """Raise if a column is not binary, or if Pillow is not installed."""
        if not is_bytes(kind):
            raise TypeError("a column of bytes was expected")
        if self.mode not in ("RGB", "L", "RGBA"):
            raise TypeError(f"the mode {self.mode!r} is not one of RGB, L, RGBA")
        try:
            import PIL  # noqa: F401
        except ImportError as error:
            raise not_installed("images", "images", f"images need Pillow: {error}") from error

    def prepare(self, values: pa.Array, fill: Any) -> Rows:
        """Return the encoded images."""
        return values.cast(pa.large_binary())

    def finish(self, rows: Rows) -> Any:
        """Return the images, decoded."""
        made: NDArray[Any] = np.empty(len(rows), object)
        for at, data in enumerate(rows):
            made[at] = self._decoded(at, data.as_buffer())
        if self.size is None:
            return made
        channels = {"L": 1, "RGB": 3, "RGBA": 4}[self.mode]
        return np.stack(list(made)) if len(made) else np.zeros((0, *self.size, channels), np.uint8)

    def _decoded(self, at: int, data: pa.Buffer) -> NDArray[np.uint8]:
        from PIL import Image as Pillow

        try:
            with Pillow.open(BytesIO(memoryview(data))) as image:
                width, height = image.size
                if width * height > self.max_pixels:
                    raise UnfitError(
                        at,
                        f"an image of {width} × {height} pixels, "
                        f"at most {self.max_pixels} are decoded",
                    )
                made = image.convert(self.mode)
                if self.size is not None and (height, width) != tuple(self.size):
                    made = made.resize((self.size[1], self.size[0]), Pillow.Resampling.BILINEAR)
                pixels = np.array(made, np.uint8)
        except UnfitError:
            raise
        except Exception as error:  # Pillow raises errors of any class for other bytes.
            raise UnfitError(at, f"no readable image: {error}") from error
        return pixels if pixels.ndim == 3 else pixels[:, :, None]
