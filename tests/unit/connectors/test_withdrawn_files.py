"""Files of discarded batches are withdrawn, and restored when their batches are valid again.

Files of other writers are left alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import Role, SinkContext
from everfold.connectors.filesystem.sink import FileSink
from everfold.connectors.filesystem.withdrawn import identify_sink
from everfold.connectors.replay import JobLineage
from everfold.connectors.validate import check_table
from everfold.storage import Location
from everfold.types import STRING

OWN, OTHERS = identify_sink("job", "0_bids"), identify_sink("another", "0_bids")
MOVED, OTHER_TABLE = identify_sink("job", "1_bids"), identify_sink("job", "1_other")
BATCHES = [(0, 0), (0, 1), (0, 10), (1, 2), (2, 2)]


@pytest.fixture
def sink(tmp_path: Path) -> FileSink:
    declared = table(a=STRING).with_("filesystem", path="out", format="json")
    made = check_table(declared, Role.SINK).sink(SinkContext(name="0_bids", base_folder=tmp_path, table=declared))
    assert isinstance(made, FileSink)
    made.prepare()
    return made


def put(sink: FileSink, *names: str) -> None:
    for name in names:
        (sink.root / name).write(name)


def visible(sink: FileSink) -> set[str]:
    """Return the files that readers see, and check that each has its own content."""
    found = {each.relative_to(sink.root) for each in sink.root.walk()}
    shown = {each for each in found if not each.rpartition("/")[2].startswith(".")}
    assert all((sink.root / each).read_text() == each for each in shown)
    return shown


def lineage(**last: int | None) -> JobLineage:
    """Return which batches are valid: `e0=3` means those of epoch 0 up to batch 3."""
    of = {int(epoch[1:]): batch for epoch, batch in last.items()}
    return JobLineage(
        job="job",
        epoch=max(of),
        last_batches=of,
        rewind_epoch=max(of),
        first_discarded_epoch=None,
        sinks={"bids": frozenset({"1_bids"}), "other": frozenset({"1_other"})},
    )


def name(epoch: int, batch: int, part: int = 0, *, identity: str = OWN) -> str:
    return f"part-{identity}-{epoch}-{batch}-{part:05d}.json"


def test_only_valid_batches_are_visible(sink: FileSink) -> None:
    own = {name(*each) for each in BATCHES}
    put(sink, *own)
    sink.undo_discarded_batches(lineage(e0=1, e3=None))
    assert visible(sink) == {name(0, 0), name(0, 1)}
    sink.undo_discarded_batches(lineage(e0=1, e3=None))
    assert visible(sink) == {name(0, 0), name(0, 1)}
    sink.undo_discarded_batches(lineage(e0=None, e1=None, e4=None))
    assert visible(sink) == own - {name(2, 2)}
    sink.undo_discarded_batches(lineage(e5=None))
    assert visible(sink) == set()
    sink.undo_discarded_batches(lineage(e0=None, e1=None, e2=None))
    assert visible(sink) == own


def test_files_of_other_writers_stay(sink: FileSink) -> None:
    others = {
        name(7, 7, identity=OTHERS),
        name(7, 7, identity=OTHER_TABLE),
        "mine.json",
        f"part-{OWN}.json",
        f"part-{OWN}-x-0-00000.json",
        f"part-{OWN}-7-7-00000.json.bak",
        f"copy-of-part-{OWN}-7-7-00000.json",
        "_SUCCESS",
    }
    hidden = f".part-{OWN}-7-7-00000-0123456789ab.json.inprogress"
    put(sink, *others, hidden)
    sink.undo_discarded_batches(lineage(e1=None))
    assert visible(sink) == others
    assert (sink.root / hidden).exists()


def test_files_written_under_another_sink_name_are_recognized(sink: FileSink) -> None:
    put(sink, name(0, 0, identity=MOVED), name(1, 0))
    sink.undo_discarded_batches(lineage(e0=None, e2=None))
    assert visible(sink) == {name(0, 0, identity=MOVED)}
    sink.undo_discarded_batches(lineage(e3=None))
    assert visible(sink) == set()


def test_files_in_partition_directories_are_withdrawn_too(sink: FileSink) -> None:
    put(sink, f"dt=1/k=a/{name(0, 0)}", f"dt=1/k=a/{name(1, 0)}", f"dt=2/k=a/{name(1, 0, 3)}")
    sink.undo_discarded_batches(lineage(e0=None, e2=None))
    assert visible(sink) == {f"dt=1/k=a/{name(0, 0)}"}
    sink.undo_discarded_batches(lineage(e0=None, e1=None, e3=None))
    assert len(visible(sink)) == 3


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("step", ["copy_to", "delete"])
def test_an_interrupted_withdrawal_is_finished(
    sink: FileSink, monkeypatch: pytest.MonkeyPatch, step: str, after: int
) -> None:
    put(sink, *(name(1, 0, part) for part in range(4)), name(0, 0))
    done: list[str] = []
    real = getattr(Location, step)

    def interrupt(file: Location, *target: Location) -> None:
        if len(done) == after:
            raise KeyboardInterrupt
        done.append(file.name)
        real(file, *target)

    with monkeypatch.context() as patched:
        patched.setattr(Location, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            sink.undo_discarded_batches(lineage(e0=None, e2=None))
    # A file keeps its visible name until all files have their hidden one.
    assert len(visible(sink)) == (5 - after if step == "delete" else 5)
    sink.undo_discarded_batches(lineage(e0=None, e2=None))
    assert visible(sink) == {name(0, 0)}
    assert len(list(sink.root.glob("*part-*"))) == 5  # each has one of its two names
