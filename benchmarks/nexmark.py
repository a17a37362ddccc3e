"""Make the events of Nexmark: the bids in full, persons and auctions as rows that only have a type
and a time.

The rules are those of the generator in the repository nexmark/nexmark: 50 events are one person,
three auctions and 46 bids; 100,000 events are a second of event time; half of the bids are for a
hot auction and three quarters are of a hot bidder, and both change with time. Differences: the
values depend only on the seed and on the number of the event, a bidder is not offset twice, and the
text that fills up a bid is one of 4,096, so that Parquet can store it as a dictionary.
"""

from __future__ import annotations

import string
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers: TypeAlias = npt.NDArray[np.int64]

START_MS = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC
CHUNK_EVENTS = 100_000
EVENTS_PER_MS = 100
PERSONS, AUCTIONS, EVENTS = 1, 3, 50
"""Of every 50 events the first is a person, and the next three are auctions."""
FIRST_ID = 1000
HOT_GROUP = 100
ACTIVE_PERSONS, IN_FLIGHT_AUCTIONS, IDS_AHEAD = 1000, 100, 10
HOT_CHANNELS, CHANNELS = ("Google", "Facebook", "Baidu", "Apple"), 10_000
EXTRAS, EXTRA_LETTERS = 4096, (54, 83)
"""The number of different texts, and the bounds of their lengths: 100 bytes a bid on average."""
SCHEMA = pa.schema(
    [
        ("event_type", pa.int64()),
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("dateTime", pa.timestamp("us", tz="UTC")),
        ("extra", pa.string()),
    ]
)


def make_events(first: int, count: int, seed: int) -> pa.Table:
    """Return events `first` to `first + count`; both are multiples of a chunk."""
    return pa.concat_tables(
        _make_chunk(np.arange(start, start + CHUNK_EVENTS, dtype=np.int64), np.random.default_rng((seed, start)))
        for start in range(first, first + count, CHUNK_EVENTS)
    )


def _make_chunk(events: Numbers, random: np.random.Generator) -> pa.Table:
    size = len(events)
    offset = events % EVENTS
    event_type = np.where(offset < PERSONS, 0, np.where(offset < PERSONS + AUCTIONS, 1, 2))
    last_person = events // EVENTS
    last_auction = last_person * AUCTIONS + AUCTIONS - 1
    hot = random.random((3, size))
    auction = np.where(hot[0] < 1 / 2, last_auction // HOT_GROUP * HOT_GROUP, _draw_auction(last_auction, random))
    bidder = np.where(hot[1] < 3 / 4, last_person // HOT_GROUP * HOT_GROUP + 1, _draw_person(last_person, random))
    price = np.round(100 * 10 ** (6 * random.random(size))).astype(np.int64)
    channel = np.where(
        hot[2] < 1 / 2,
        random.integers(0, len(HOT_CHANNELS), size),
        len(HOT_CHANNELS) + random.integers(0, CHANNELS, size),
    )
    extra = random.integers(0, EXTRAS, size)
    no_bid = event_type != 2
    times = pa.array((START_MS + events // EVENTS_PER_MS) * 1000).cast(SCHEMA.field("dateTime").type)
    columns = [
        pa.array(event_type),
        *(pa.array(each, mask=no_bid) for each in (auction + FIRST_ID, bidder + FIRST_ID, price)),
        _CHANNEL.take(pa.array(channel, mask=no_bid)),
        _URL.take(pa.array(channel, mask=no_bid)),
        times,
        _EXTRA.take(pa.array(extra, mask=no_bid)),
    ]
    return pa.table(columns, schema=SCHEMA)


def _draw_auction(last: Numbers, random: np.random.Generator) -> Numbers:
    oldest = np.maximum(last - IN_FLIGHT_AUCTIONS, 0)
    return oldest + random.integers(0, last - oldest + 1 + IDS_AHEAD)


def _draw_person(last: Numbers, random: np.random.Generator) -> Numbers:
    active = np.minimum(last + 1, ACTIVE_PERSONS)
    return last + 1 - active + random.integers(0, active + IDS_AHEAD)


def _make_texts(count: int, bounds: tuple[int, int], random: np.random.Generator) -> list[str]:
    """Return texts of letters with a blank in 13 places."""
    letters = np.array(list(string.ascii_lowercase))
    texts = []
    for length in random.integers(*bounds, count):
        text = np.where(random.random(length) < 1 / 13, " ", random.choice(letters, length))
        texts.append("".join(text))
    return texts


def _make_channels() -> tuple[list[str], list[str]]:
    """Return the names and URLs of all channels, the hot ones first."""
    random = np.random.default_rng(5)
    names = [*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]
    urls = []
    for at, path in enumerate(_make_texts(len(names), (5, 6), random)):
        url = f"https://www.nexmark.com/{path.replace(' ', '_')}/{path[::-1].replace(' ', '_')}/item.htm?query=1"
        cold = at >= len(HOT_CHANNELS) and random.random() < 9 / 10
        urls.append(f"{url}&channel_id={int(f'{at:032b}'[::-1], 2)}" if cold else url)
    return names, urls


_CHANNEL, _URL = (pa.array(each) for each in _make_channels())
_EXTRA = pa.array(_make_texts(EXTRAS, EXTRA_LETTERS, np.random.default_rng(6)))
