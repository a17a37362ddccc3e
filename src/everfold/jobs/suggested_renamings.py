"""Find renamed source tables and columns because of which state would be discarded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, permutations
from typing import TYPE_CHECKING, Protocol

from everfold.compat import CompatOptions, QueryPair, judge_pairs, pair_queries, shape_of
from everfold.compat.alternatives import compare_judgements
from everfold.compat.judgement import Alternative, Judgement
from everfold.errors import EverfoldError
from everfold.jobs.renamed_sources import find_known_names, list_tables
from everfold.plan.canonical import quote_name
from everfold.plan.known_names import KnownTable, apply_known_names
from everfold.plan.nodes import Table
from everfold.plan.walk import scans_of, tables_read

if TYPE_CHECKING:
    from everfold.compat.operator_ids import SourceNote
    from everfold.jobs.manifest import NewQuery, Version

_MAX_TRIALS = 24
"""How many renamings are judged: each takes about a millisecond."""


class SameLocation(Protocol):
    """Returns whether a table that a job has read is at the location of a table of the query."""

    def __call__(self, note: SourceNote, table: Table) -> bool:
        """See the class."""


def suggest_renaming(
    version: Version,
    query: NewQuery,
    judgement: Judgement,
    options: CompatOptions,
    renamed_sinks: Mapping[str, str],
    is_same_location: SameLocation,
) -> Alternative | None:
    """Return the renaming with which a job would keep most, None if none keeps more.

    judgement, options: of the query as it is. renamed_sinks: see `pair_queries`.
    """
    old_shapes = version.read_shapes(query)
    best: Alternative | None = None
    current = judgement
    for renamed in islice(_list_renamings(version, query, is_same_location), _MAX_TRIALS):
        try:
            names = find_known_names(version, tables_read(query.roots), renamed)
        except EverfoldError:  # the state does not have that column
            continue
        shapes = [shape_of(root) for root in apply_known_names(query.roots, names)]
        pairs: Sequence[QueryPair] = pair_queries(old_shapes, shapes, renamed_sinks)
        wider = judge_pairs(pairs, options)
        gained = compare_judgements(current, wider)
        if gained is not None:
            current = wider
            arguments = tuple(f"--source {old}={new}" for old, new in renamed.items())
            best = Alternative({}, wider.verdict, compare_judgements(judgement, wider) or gained, arguments)
    return best


def _list_renamings(version: Version, query: NewQuery, is_same_location: SameLocation) -> Iterator[dict[str, str]]:
    """Yield renamings of tables at their old location and of their columns, as of `--source`."""
    old_tables = list_tables(version)
    read = {scan.table.name: scan.table for scan in scans_of(query.roots)}
    present = {table.name: name for name, table in version.known_names.items()}
    for note in version.sources or ():
        old = present.get(note["table"], note["table"])
        tables = [read[old]] if old in read else [table for name, table in read.items() if name not in old_tables]
        for table in tables:
            if not is_same_location(note, table):
                continue
            renaming = {} if table.name == old else {old: table.name}
            if renaming:
                yield renaming
            for columns in _list_column_renamings(version, old, table):
                yield renaming | columns


def _list_column_renamings(version: Version, old: str, table: Table) -> Iterator[dict[str, str]]:
    known_table = version.known_names.get(old, KnownTable(old))
    text = json.dumps(version.shapes, ensure_ascii=False)
    pattern = rf"(?<![\w.`]){re.escape(quote_name(known_table.name))}\.(?:`([^`]+)`|(\w+))"
    present = {former: name for name, former in known_table.columns.items()}
    stored = dict.fromkeys(quoted or plain for quoted, plain in re.findall(pattern, text))
    used = [present.get(column, column) for column in stored]
    names = [column.name for column in table.columns]
    missing = [column for column in used if column not in names]
    fresh = [name for name in names if name not in used]
    if missing:
        for chosen in permutations(fresh, len(missing)):
            yield {f"{old}.{column}": name for column, name in zip(missing, chosen, strict=True)}
