"""A step's memory as one image: code, arrays and the argument block, laid out for an address."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsay.isa.abi import StepArgs


@dataclass
class Memory:
    """Bytes from `base` on, which grow as things are placed in them."""

    base: int
    image: bytearray
    places: dict[str, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The first address behind the image."""
        return self.base + len(self.image)

    def place(self, data: bytes, alignment: int = 4096) -> int:
        """Append data; its address."""
        self.image.extend(bytes(-len(self.image) % alignment))
        self.image.extend(data)
        return self.end - len(data)

    def place_step(self, arrays: dict[str, np.ndarray], counts: dict[str, int]) -> int:
        """Append one array per pointer field of StepArgs, and the block itself, whose address is the result."""
        self.places = {name: self.place(array.tobytes()) for name, array in arrays.items()}
        return self.place(bytes(StepArgs(**self.places, **counts)))

    def arrays_in(self, after: bytes, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays as they are in a later image."""
        return {
            name: np.frombuffer(after, array.dtype, array.size, self.places[name] - self.base).reshape(array.shape)
            for name, array in arrays.items()
        }
