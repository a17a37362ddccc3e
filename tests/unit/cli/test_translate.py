"""`everfold translate`: its output, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
SET defaults.topic.properties.bootstrap.servers = '${servers}';
SET defaults.topic.properties.sasl.password = hush;
CREATE TABLE gaming-sessions(_key STRING, points INT, country STRING) FORMAT (STRING, JSON);
SET defaults.topic.autocreate = true;
INSERT INTO totals SUM(points) AS total FROM gaming-sessions GROUP BY country HAVING total > 3;
"""


def everfold(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.sql").write_text(script)
    command = [sys.executable, "-m", "everfold", "translate", *arguments, "script.sql"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)


def test_a_translation_can_be_translated_back(tmp_path: Path) -> None:
    there = everfold(tmp_path, SCRIPT, "--from", "lenses", "--to", "flink")
    assert (there.returncode, there.stderr) == (0, "note: both scripts have the same plan\n")
    assert (
        "SUM(`points`) AS `total`\nFROM `gaming-sessions`\nGROUP BY `country`\nHAVING SUM(`points`) > 3;\n"
        in there.stdout
    )
    assert "'properties.bootstrap.servers' = '${servers}'" in there.stdout
    assert "'properties.sasl.password' = '******'" in there.stdout
    back = everfold(tmp_path, there.stdout, "--from", "flink", "--to", "lenses")
    assert (back.returncode, back.stderr) == (0, "note: both scripts have the same plan\n")
    assert (
        "SELECT STREAM SUM(`points`) AS `total`\nFROM `gaming-sessions`\nGROUP BY `country`\nHAVING `total` > 3;\n"
        in back.stdout
    )


def test_what_flink_cannot_express_is_refused(tmp_path: Path) -> None:
    done = everfold(tmp_path, SCRIPT.replace("SUM(points)", "TOPK(points)"), "--from", "lenses", "--to", "flink")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[not-in-flink]: Flink SQL cannot express the aggregate `TOPK`" in done.stderr


def test_missing_brokers_become_a_variable(tmp_path: Path) -> None:
    script = "\n".join(line for line in SCRIPT.splitlines() if "properties" not in line)
    done = everfold(tmp_path, script, "--from", "lenses", "--to", "flink")
    assert "'properties.bootstrap.servers' = '${BROKERS}'" in done.stdout


def test_a_script_that_sets_its_dialect_is_translated(tmp_path: Path) -> None:
    plain = everfold(tmp_path, SCRIPT, "--from", "lenses", "--to", "flink")
    switching = everfold(tmp_path, "SET 'everfold.dialect' = 'lenses';" + SCRIPT, "--from", "flink", "--to", "flink")
    assert (switching.returncode, switching.stdout) == (0, plain.stdout)
