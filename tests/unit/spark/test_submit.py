"""Options of everfold's command line that contradict `spark-submit`."""

from __future__ import annotations

import pytest

from everfold.errors import UsageError
from everfold.spark.submit import check_contradictions, is_submitted

SUBMITTED = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.submit.deployMode": "client"}


@pytest.mark.parametrize(
    ("master", "conf"),
    [
        (None, {}),
        ("local[2]", {"spark.master": "local[2]"}),
        (None, {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"}),
    ],
)
def test_options_that_agree(master: str | None, conf: dict[str, str]) -> None:
    check_contradictions(SUBMITTED, master, conf)


@pytest.mark.parametrize(
    ("master", "conf", "message"),
    [
        ("yarn", {}, "`--master` contradicts spark-submit, where `spark.master` is `local[2]`"),
        (None, {"spark.master": "yarn"}, "`--conf spark.master` contradicts spark-submit"),
        (None, {"spark.driver.memory": "4g"}, "where `spark.driver.memory` is another value"),
        (None, {"spark.driver.extraJavaOptions": "-Dpassword=x"}, "where `spark.driver.extraJavaOptions` is not set"),
        (None, {"spark.submit.deployMode": "cluster"}, "`--conf spark.submit.deployMode` contradicts"),
    ],
)
def test_options_that_contradict(master: str | None, conf: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_contradictions(SUBMITTED, master, conf)
    assert raised.value.code == "spark-submit"
    assert message in str(raised.value)
    assert "password" not in str(raised.value)


def test_a_process_of_spark_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert not is_submitted()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert is_submitted()
