"""`%%everfold` in real kernels: the notebook of the examples, and an interrupted query."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel
from nbclient import NotebookClient

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook" / "bids.ipynb"
PATIENCE_S = 600
ENDLESS = """%%everfold --into counts
CREATE TABLE Numbers (a INT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '10', 'fields.a.min' = '1', 'fields.a.max' = '3');
SELECT a, COUNT(*) AS n FROM Numbers GROUP BY a
"""


def test_the_notebook_of_the_examples_runs() -> None:
    notebook = nbformat.read(EXAMPLE, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=PATIENCE_S, resources={"metadata": {"path": str(EXAMPLE.parent)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert [each.output_type for each in outputs if each.output_type == "error"] == []
    html = [each.data["text/html"] for each in outputs if "text/html" in each.get("data", {})]
    # The windows of the seed's bids, by supplier: 4 + 2 and 5, 1 and 3 + 6.
    windows = next(each for each in html if "window_start" in each)
    assert "<p>4 rows</p>" in windows
    assert all(f">{total}</td>" in windows for total in ("6.00", "5.00", "1.00", "9.00")), windows
    plots = [each.data for each in outputs if "application/vnd.vegalite.v6+json" in each.get("data", {})]
    assert len(plots) == 1
    assert "application/vnd.vegalite.v5+json" in plots[0]  # what JupyterLab 4 draws by itself
    assert "text/html" not in plots[0]  # JupyterLab would prefer it
    printed = "".join(each.text for each in outputs if each.output_type == "stream")
    assert "Ulm" in printed
    assert any("error[unknown-column]" in each for each in html)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    manager, client = start_new_kernel(cwd=str(tmp_path))
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.slow
def test_an_interrupt_stops_a_query_and_keeps_its_rows(kernel: tuple[KernelManager, BlockingKernelClient]) -> None:
    manager, client = kernel
    client.execute("%load_ext everfold")
    client.execute(ENDLESS)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        message = client.get_iopub_msg(timeout=PATIENCE_S)
        if message["msg_type"] == "update_display_data" and "<td" in message["content"]["data"]["text/html"]:
            break
    manager.interrupt_kernel()
    reply = client.execute_interactive("print(sorted(row.a for row in counts.collect()))", timeout=PATIENCE_S)
    assert reply["content"]["status"] == "ok"
    printed: list[dict[str, Any]] = []
    client.execute_interactive(
        "print(len(counts.collect()) in (1, 2, 3))", timeout=PATIENCE_S, output_hook=printed.append
    )
    assert "True\n" in [each["content"].get("text") for each in printed if each["msg_type"] == "stream"]
