"""The head page of a bucket: what its operator reads at the start of a batch, and writes at its end."""

from __future__ import annotations

from typing import Any

from everfold.state.pages import decode_head, encode_head
from everfold.state.store import PageKey, Store

HEAD = "head"
"""What keys of head pages have as their table."""


def read_head(store: Store, epoch: int) -> dict[str, Any]:
    """What the batch before left; nothing before the first. StateError `damaged-page`."""
    blob = store.get(_key(epoch))
    return {} if blob is None else decode_head(blob)


def is_begun(store: Store, epoch: int) -> bool:
    """Whether a batch has left a head in this epoch."""
    return store.get(_key(epoch)) is not None


def write_head(store: Store, epoch: int, head: dict[str, Any]) -> None:
    """Leaves it for the next batch."""
    store.put(_key(epoch), encode_head(head))


def _key(epoch: int) -> PageKey:
    return PageKey(epoch, HEAD, 0, 0)
