"""The head page of a bucket: read by its operator at the start of a batch, written at its end."""

from __future__ import annotations

from typing import Any

from everfold.state.pages import decode_head, encode_head
from everfold.state.store import PageKey, Store

HEAD = "head"
"""Table name in the keys of head pages."""


def read_head(store: Store, epoch: int) -> dict[str, Any]:
    """Return the head that the previous batch wrote, empty before the first batch.

    Raises StateError `damaged-page`.
    """
    blob = store.get(_key(epoch))
    return {} if blob is None else decode_head(blob)


def has_head(store: Store, epoch: int) -> bool:
    """Return whether a batch has written a head in this epoch."""
    return store.get(_key(epoch)) is not None


def write_head(store: Store, epoch: int, head: dict[str, Any]) -> None:
    """Write the head for the next batch."""
    store.put(_key(epoch), encode_head(head))


def _key(epoch: int) -> PageKey:
    return PageKey(epoch, HEAD, 0, 0)
