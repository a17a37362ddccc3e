"""The bytes of Arrow's arrays as NumPy sees them, and arrays made of pieces of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


def view_bytes(blobs: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return where the values of an array start and the last one ends, and the bytes.

    blobs: STRING or BINARY. The positions are those in the buffer; the array may be a slice.
    """
    import numpy as np

    offsets, content = blobs.buffers()[1:]
    edges = np.frombuffer(offsets, np.int32)[blobs.offset :][: len(blobs) + 1]
    return edges, np.frombuffer(content or b"", np.uint8)


def cut_bytes(
    content: Any, starts: np.ndarray, ends: np.ndarray, array_type: pa.DataType, are_null: np.ndarray | None = None
) -> pa.Array:
    """Return the values between positions of a buffer, which ascend, as an array.

    content: a buffer of Arrow. array_type: BINARY, or STRING if the bytes are UTF-8. are_null:
    which values are NULL.
    """
    import numpy as np
    import pyarrow as pa

    count = len(starts)
    if not count:
        return pa.array([], array_type)
    # The bytes between two offsets are a value and what is between it and the next one in turn.
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[:-1:2], offsets[1::2], offsets[-1] = starts, ends, ends[-1]
    with_gaps = pa.Array.from_buffers(array_type, 2 * count, [None, pa.py_buffer(offsets), content])
    return with_gaps.take(pa.array(np.arange(0, 2 * count, 2), mask=are_null))


def list_offsets(lists: pa.Array) -> pa.Array:
    """Return the offsets of lists in their flattened values; NULL at a list that is NULL."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = np.cumsum(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)
    missing = np.append(lists.is_null().to_numpy(zero_copy_only=False), False)
    return pa.array(np.concatenate(([0], ends)), pa.int32(), mask=missing)
