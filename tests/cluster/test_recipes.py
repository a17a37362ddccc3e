"""The recipes of docs/cluster.md run, on the clusters that their blocks name."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from jvm import daemon_environment
from mini_yarn import MiniYarn
from pages import ROOT, Block, blocks
from standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BLOCKS = list(blocks(ROOT / "docs" / "cluster.md"))
ROWS = [(minute, "ab"[minute % 2], minute) for minute in range(0, 180, 7)]
TIMEOUT_S = 400


def on(cluster: str) -> pytest.MarkDecorator:
    """Run a test with each recipe for a kind of cluster."""
    chosen = [each for each in BLOCKS if each.info.startswith("sh ") and cluster in each.info.split()]
    return pytest.mark.parametrize("recipe", chosen, ids=lambda block: block.id)


def text_with(info: str, part: str) -> str:
    """Return the block of the page that has a kind and contains a string."""
    (found,) = (each.text for each in BLOCKS if each.info == info and part in each.text)
    return found


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The folder that all machines share, with the input of the recipes."""
    folder = tmp_path / "shared"
    (folder / "orders").mkdir(parents=True)
    rows = [
        {"at": f"2026-01-01 {minute // 60:02}:{minute % 60:02}:00", "item": item, "price": price}
        for minute, item, price in ROWS
    ]
    (folder / "orders" / "1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def here(tmp_path: Path, shared: Path) -> Path:
    """The folder in which the user runs the recipes, with the files that the page shows."""
    folder = tmp_path / "here"
    folder.mkdir()
    sql = text_with("sql", "per_hour").replace("/shared", str(shared))
    (folder / "per_hour.sql").write_text(sql)
    (folder / "everfold_submit.py").write_text(text_with("python", "main()"))
    program = text_with("python", "TableEnvironment").replace("/shared", str(shared))
    (folder / "per_hour.py").write_text(program)
    pack_environment(folder)
    return folder


def pack_environment(folder: Path) -> None:
    """Pack a virtual environment of the test's Python, which finds its libraries where they are."""
    made = folder.parent / "packed"
    subprocess.run([sys._base_executable, "-m", "venv", "--without-pip", made], check=True)  # type: ignore[attr-defined]
    (libraries,) = (made / "lib").glob("python3*/site-packages")
    (own,) = (path for path in map(Path, sys.path) if path.name == "site-packages" and (path / "pyspark").is_dir())
    (libraries / "libraries.pth").write_text(f"import site; site.addsitedir({str(own)!r})\n")
    with tarfile.open(folder / "env.tar.gz", "w:gz") as out:
        out.add(made, ".")


def run(recipe: Block, here: Path, replaced: Mapping[str, str], environment: Mapping[str, str] = {}) -> str:
    """Run a recipe and return what it has printed."""
    text = recipe.text
    replaced = {**replaced, "/shared": str(here.with_name("shared")), "/opt/everfold/bin/python": sys.executable}
    for old, new in replaced.items():
        text = text.replace(old, new)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-e", "-c", text],
        cwd=here,
        env={**os.environ, **daemon_environment(), "PATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def check_result(shared: Path) -> None:
    """Check that the job has written the right rows, each once."""
    expected: dict[tuple[str, str], int] = {}
    for minute, item, price in ROWS:
        key = f"{minute // 60:02}:00:00", item
        expected[key] = expected.get(key, 0) + price
    lines = [line for file in (shared / "per_hour").glob("part-*") for line in file.read_text().splitlines()]
    found = list(csv.reader(lines))
    assert sorted((at.split()[1].partition(".")[0], item, int(total)) for at, item, total in found) == sorted(
        (*key, total) for key, total in expected.items()
    )
    assert list((shared / "jobs").glob("per_hour/checkpoints/*/commits/0"))


@pytest.fixture(scope="module")
def standalone() -> Iterator[StandaloneCluster]:
    with StandaloneCluster() as cluster:
        yield cluster


@on("standalone")
def test_on_a_standalone_cluster(recipe: Block, here: Path, shared: Path, standalone: StandaloneCluster) -> None:
    run(recipe, here, {"spark://host:7077": standalone.url})
    check_result(shared)


@on("local")
def test_on_this_machine(recipe: Block, here: Path, shared: Path) -> None:
    printed = run(recipe, here, {"spark://host:7077": "'local[2]'"})
    assert f"per_hour: finished; {len(ROWS)} rows in, 6 rows out" in printed
    check_result(shared)


def test_spark_submit_decides_about_the_master(here: Path) -> None:
    command = ["spark-submit", "--master", "local[1]", "everfold_submit.py", "run", "per_hour.sql"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*command, "--master", "local[2]"],
        cwd=here,
        env={**os.environ, **daemon_environment(), "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2, done.stderr
    assert "error[spark-submit]: `--master` contradicts spark-submit, where `spark.master` is `local[1]`" in done.stdout


@pytest.fixture(scope="module")
def yarn() -> Iterator[MiniYarn]:
    with MiniYarn() as cluster:
        yield cluster


@on("yarn")
def test_on_yarn(recipe: Block, here: Path, shared: Path, yarn: MiniYarn) -> None:
    try:
        run(recipe, here, {"/etc/hadoop/conf": str(yarn.hadoop_conf)}, {"SPARK_CONF_DIR": str(yarn.spark_conf)})
    except AssertionError as error:
        raise AssertionError(f"{error}\n{yarn.find_output()}") from error
    check_result(shared)
