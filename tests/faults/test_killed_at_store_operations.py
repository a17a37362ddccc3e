"""A driver that is killed after each operation on its store, while a job starts, runs, changes, goes
back and is rescaled. The next run ends with the rows of an undisturbed one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.crash_images import Plan, Recording, Step, load_recording, run_plan
from jvm import SHORT_LIVED_DRIVER, conf_options
from s3 import S3Server
from totals import (
    COUNTS,
    DDL,
    SUMS,
    add_up_changes,
    check_nothing_hidden,
    compute_totals,
    write_orders,
)

pytestmark = [pytest.mark.slow, pytest.mark.spark]
TIMEOUT_S = 3600.0


def make_plan(root: str, conf: dict[str, str], file: Path, **members: object) -> Plan:
    """Return the commands of a user, from the first start to a rescaled job."""
    options = ["--master", "local[2]", *conf_options({**SHORT_LIVED_DRIVER, **conf})]
    job = f"{root}/job"

    def run(query: dict[str, str], *more: str) -> list[str]:
        return ["run", "-e", DDL.format(root=root, **query), "--state", job, *options, *more]

    def add(number: int) -> dict[str, str]:
        return {f"orders/{number}.json": write_orders(number)}

    rollback = ["rollback", job, "0", *options[2:]]
    steps = (
        Step("start", [run(COUNTS)], add(0)),
        Step("change", [run(SUMS, "--on-change", "backfill")], add(1)),
        Step("rollback", [rollback, run(COUNTS)]),
        Step("rescale", [["rescale", job, "3", *options], run(COUNTS)], add(2)),
    )
    return Plan(root, steps, str(file), **members)  # type: ignore[arg-type]


def read_totals(files: dict[str, str]) -> list[dict[str, object]]:
    """Return the rows of the table; nothing hidden is left."""
    check_nothing_hidden(files)
    visible = [text for name, text in sorted(files.items()) if name.rpartition("/")[2][0] not in "._"]
    return add_up_changes(line for text in visible for line in text.splitlines())


def check_undisturbed(recording: Recording) -> list[list[dict[str, object]]]:
    """Check the rows after each step against those computed in Python, and return them."""
    rows = [read_totals(recording.read_files(end, "totals")) for end in recording.ends]
    assert rows[0] == compute_totals(0, sums=False)
    assert rows[1] == compute_totals(0, 1, sums=True)
    assert rows[2] == compute_totals(0, 1, sums=False)
    assert rows[3] == compute_totals(0, 1, 2, sums=False)
    return rows


def check_each_image(plan: Plan) -> None:
    """Record the images, continue from each, and compare the rows with those of the undisturbed run."""
    (counts,) = run_plan(plan, "record", TIMEOUT_S)
    recording = load_recording(plan)
    expected = check_undisturbed(recording)
    wrong = []
    found = run_plan(plan, "recover", TIMEOUT_S)
    for each in found:
        try:
            assert not each["failed"]
            assert read_totals(each["totals"]) == expected[each["step"]]
        except AssertionError as error:
            wrong.append(
                f"{each['number']}: {plan.steps[each['step']].name}, {each['operation']}: {each['failed'] or error}"
            )
    print(f"{counts['operations']} operations, {len(found)} kills")
    assert not wrong, "\n".join(wrong)
    assert {each["step"] for each in found} == {*range(len(plan.steps))}


def test_on_a_local_disk(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    check_each_image(make_plan(str(tmp_path / "root"), {}, tmp_path / "images"))


def test_in_s3(tmp_path: Path, s3_server: S3Server) -> None:
    """A sample of the operations."""
    root = f"s3a://everfold/{tmp_path.name}"
    check_each_image(
        make_plan(root, dict(s3_server.conf), tmp_path / "images", port=s3_server.port, every=6, copies=100)
    )
