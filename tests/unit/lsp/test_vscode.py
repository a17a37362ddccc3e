"""The extension in a real VS Code: errors, hints about state, completion, types, formatting."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import open_page
from playwright.sync_api import Page, expect
from vscode import open_script, start_vscode

TABLE = """\
CREATE TABLE orders (
  at TIMESTAMP(3), customer STRING, amount INT,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json');

"""
QUERY = """\
SELECT
  customer,
  SUM(amount) AS total,
  {column}
FROM orders
GROUP BY customer;
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_vscode(tmp_path_factory.mktemp("vscode")) as found:
        yield found


@pytest.fixture
def page() -> Iterator[Page]:
    with open_page() as (found, _):
        yield found


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script whose last column is not the one in git."""
    found = tmp_path / "spending.sql"
    found.write_text(TABLE + QUERY.format(column="MAX(amount) AS largest"))
    for command in (["init"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-m", "1"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    found.write_text(TABLE + QUERY.format(column="COUNT(*) AS orders"))
    return found


def configure(script: Path, *command: str) -> None:
    """Write the command of the server into the settings of the script's folder."""
    settings = script.parent / ".vscode" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"everfold.command": command}))


def click_line(page: Page, text: str) -> None:
    page.locator(".view-line", has_text=text).first.click()


@pytest.mark.slow
def test_a_changed_script(address: str, page: Page, script: Path) -> None:
    # The command changes while the first server starts: when the folder becomes trusted.
    configure(script, sys.executable, "-m", "everfold", "lsp")
    open_script(page, address, script)
    verdict = "partially compatible: 2 kept, 1 starts now, 1 dropped (compared with the version in git)"
    expect(page.get_by_text(verdict)).to_be_visible()
    # A second server would show its hints beside those of the first.
    expect(page.locator(".view-line", has_text="SUM(amount)")).to_have_text(re.compile(r"total\s*kept\s*,$"))
    expect(page.locator(".view-line", has_text="COUNT(*)")).to_contain_text("starts now")

    click_line(page, "FROM orders")
    page.keyboard.press("End")
    page.keyboard.type(" WHERE amo")
    page.keyboard.press("Control+Space")
    column = page.locator(".suggest-widget .monaco-list-row", has_text="amount")
    expect(column).to_contain_text("INT")
    page.keyboard.press("Escape")
    page.keyboard.type("x > 1")
    # VS Code asks for a new verdict once the editor rests, but not while another panel has the focus.
    expect(page.get_by_text(verdict)).to_be_hidden()
    page.keyboard.press("Control+Shift+M")
    problem = page.locator(".markers-panel")
    expect(problem).to_contain_text("no column is named `amox`")
    expect(problem).to_contain_text("there are `at`, `customer`, `amount`")
    expect(problem).to_contain_text("unknown-column")


@pytest.mark.slow
def test_types_and_formatting(address: str, page: Page, script: Path) -> None:
    script.write_text(TABLE + "select customer, sum(amount) as total from orders group by customer;\n")
    open_script(page, address, script)
    expect(page.get_by_text("compared with the version in git").first).to_be_visible()
    click_line(page, "select")
    page.keyboard.press("Home")
    for _ in range(len("select c")):
        page.keyboard.press("ArrowRight")
    for key in ("Control+K", "Control+I"):
        page.keyboard.press(key)
    expect(page.locator(".monaco-hover", has_text="STRING")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Shift+I")
    expect(page.locator(".view-line", has_text=re.compile(r"^GROUP\sBY\scustomer;$"))).to_be_visible()


@pytest.mark.slow
def test_a_command_that_does_not_start(address: str, page: Page, script: Path) -> None:
    configure(script, "everfold-missing", "lsp")
    open_script(page, address, script)
    message = page.get_by_text("`everfold-missing` does not start")
    expect(message.first).to_contain_text("ENOENT")
    expect(message.first).to_contain_text("Install it with `pip install 'everfold[lsp]'`")


@pytest.mark.slow
def test_a_folder_that_is_not_trusted_names_no_command(address: str, page: Page, script: Path) -> None:
    """The command of the folder's settings does not run; that of the user's settings does."""
    ran = script.parent / "ran"
    configure(script, "touch", str(ran))
    open_script(page, address, script, trusted=False)
    expect(page.get_by_text("compared with the version in git").first).to_be_visible()
    assert not ran.exists()
