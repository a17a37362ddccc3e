"""`everfold lsp` as a process, with a client that speaks the protocol over its stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient
from unit.job_dirs import start_job

from everfold.connectors.registry import apply_connector
from everfold.sql.planner import Session, Submit

TABLES = """\
CREATE TABLE orders (customer STRING, price INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1');
CREATE TABLE sums (customer STRING, spent INT) WITH ('connector' = 'print');
"""
INSERT = "INSERT INTO sums SELECT customer, SUM(price) AS spent FROM orders GROUP BY customer;\n"


class Editor:
    """A client with one open script."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / "job.sql"
        self.uri = self.script.as_uri()
        self.client = LanguageClient("test", "1")
        self.errors: list[lsp.Diagnostic] = []
        self._published = asyncio.Event()
        self._version = 0

        def receive(params: lsp.PublishDiagnosticsParams) -> None:  # a method could not be registered
            self._receive(params)

        self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(receive)

    def _receive(self, params: lsp.PublishDiagnosticsParams) -> None:
        self.errors = list(params.diagnostics)
        self._published.set()

    async def start(self, **settings: Any) -> lsp.InitializeResult:
        environment = {**os.environ, "EVERFOLD_CACHE": str(self.script.parent / "cache")}
        await self.client.start_io(sys.executable, "-m", "everfold", "lsp", "--stdio", env=environment)
        return await self.client.initialize_async(
            lsp.InitializeParams(lsp.ClientCapabilities(), initialization_options=settings)
        )

    async def open(self, text: str) -> None:
        self.script.write_text(text)
        self._published.clear()
        item = lsp.TextDocumentItem(self.uri, lsp.LanguageKind.Sql, self._version, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        await asyncio.wait_for(self._published.wait(), 60)

    async def change(self, text: str) -> None:
        self._version += 1
        self._published.clear()
        document = lsp.VersionedTextDocumentIdentifier(self._version, self.uri)
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(document, [lsp.TextDocumentContentChangeWholeDocument(text)])
        )
        await asyncio.wait_for(self._published.wait(), 60)

    @property
    def document(self) -> lsp.TextDocumentIdentifier:
        return lsp.TextDocumentIdentifier(self.uri)

    async def hints(self) -> list[tuple[int, int, str]]:
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(1000, 0))
        found = await self.client.text_document_inlay_hint_async(lsp.InlayHintParams(self.document, whole))
        return [(each.position.line, each.position.character, str(each.label)) for each in found or ()]

    async def stop(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        stop: Callable[[], Awaitable[None]] = self.client.stop
        await stop()


def edit(folder: Path, work: Callable[[Editor], Awaitable[None]], **settings: Any) -> None:
    """Run a session of an editor."""

    async def run() -> None:
        editor = Editor(folder)
        await editor.start(**settings)
        await work(editor)
        await editor.stop()

    asyncio.run(asyncio.wait_for(run(), 300))


def at(text: str, words: str, more: int = 0) -> lsp.Position:
    """Return the position of words in a text of characters of one code unit."""
    before = text[: text.index(words) + more]
    return lsp.Position(before.count("\n"), len(before) - before.rfind("\n") - 1)


def test_a_session_of_an_editor(tmp_path: Path) -> None:
    async def work(editor: Editor) -> None:
        await editor.open(TABLES + INSERT)
        assert editor.errors == []

        # All errors of a script, with their codes and a page about each.
        wrong = TABLES + "SELECT nope, FOO(customer) FROM orders;\nSELECT '😀', a FORM t;\n" + INSERT
        await editor.change(wrong)
        assert [(each.code, each.range.start.line) for each in editor.errors] == [
            ("syntax", 3),
            ("unknown-column", 2),
            ("unknown-function", 2),
        ]
        syntax = editor.errors[0]
        assert syntax.range == lsp.Range(lsp.Position(3, 15), lsp.Position(3, 19))  # the emoji is two units
        assert syntax.message == "unexpected `FORM`\nhelp: did you mean `FROM`?"
        assert syntax.code_description is not None
        page = Path(syntax.code_description.href.removeprefix("file://"))
        assert "not valid SQL" in page.read_text()

        text = TABLES + INSERT
        await editor.change(text)
        assert editor.errors == []
        hover = await editor.client.text_document_hover_async(
            lsp.HoverParams(editor.document, at(text, "SUM(price)", 1))
        )
        assert hover is not None
        assert "Sum of the non-null values" in str(hover.contents)
        hover = await editor.client.text_document_hover_async(lsp.HoverParams(editor.document, at(text, "price) AS")))
        assert hover is not None
        assert "price: INT" in str(hover.contents)
        hover = await editor.client.text_document_hover_async(
            lsp.HoverParams(editor.document, at(text, "orders GROUP"))
        )
        assert hover is not None
        assert "TABLE orders (\n  customer STRING,\n  price INT\n)" in hover.contents.value  # type: ignore[union-attr]

        for words, declared in (("orders GROUP", "orders ("), ("price) AS", "price INT"), ("sums SELECT", "sums (")):
            found = await editor.client.text_document_definition_async(
                lsp.DefinitionParams(editor.document, at(text, words, 1))
            )
            assert isinstance(found, lsp.Location)
            assert found.range.start == at(text, declared)

        await editor.change(TABLES + "SELECT  FROM orders;\nSELECT 1;")
        completed = await editor.client.text_document_completion_async(
            lsp.CompletionParams(editor.document, lsp.Position(2, 7))
        )
        assert isinstance(completed, lsp.CompletionList)
        assert [each.label for each in completed.items[:2]] == ["customer", "price"]
        substring = next(each for each in completed.items if each.label == "SUBSTRING(")
        assert substring.detail == "SUBSTRING(<STRING> FROM <INT> [FOR <INT>])"

        await editor.change("select a,b from t where a>1;")
        options = lsp.FormattingOptions(2, True)
        (edited,) = (
            await editor.client.text_document_formatting_async(lsp.DocumentFormattingParams(editor.document, options))
            or ()
        )
        assert edited.new_text == "SELECT a, b\nFROM t\nWHERE a > 1;\n"

    edit(tmp_path, work)


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def test_hints_tell_what_a_change_does_to_the_state(tmp_path: Path) -> None:
    """Compared with git: what is kept, what starts now and what is dropped; the first word counts."""
    query = "SELECT customer, SUM(price) AS spent, MAX(price) AS top FROM orders GROUP BY customer;"
    changed = "SELECT customer, SUM(price) AS spent, COUNT(*) AS n FROM orders GROUP BY customer;"
    git(tmp_path, "init", "-q")
    (tmp_path / "job.sql").write_text(query)
    git(tmp_path, "add", "job.sql")
    git(tmp_path, "commit", "-qm", "one")

    async def work(editor: Editor) -> None:
        await editor.open(changed)
        assert await editor.hints() == [
            (0, changed.index("customer") + len("customer"), "kept"),
            (0, changed.index(", COUNT"), "kept"),
            (0, changed.index(" FROM"), "starts now"),
            (0, changed.index(" FROM"), "dropped: top"),
        ]
        (lens,) = await editor.client.text_document_code_lens_async(lsp.CodeLensParams(editor.document)) or ()
        assert lens.command is not None
        assert lens.command.title == (
            "partially compatible: 2 kept, 1 starts now, 1 dropped (compared with the version in git)"
        )
        await editor.change(changed.replace("FROM", "FORM"))
        assert await editor.hints() == []

    edit(tmp_path, work)


def test_hints_compare_each_insert_with_its_job(tmp_path: Path) -> None:
    """A job that has run counts, also in another folder; an INSERT without a job has no hints."""
    (*_, submit) = Session(connected=apply_connector).run(TABLES + INSERT)
    assert isinstance(submit, Submit)
    start_job(tmp_path / ".everfold" / "job", submit.roots, sql=submit.text)
    changed = TABLES + INSERT.replace("SUM(price)", "SUM(price) + MAX(price)") + INSERT.replace("sums", "others")
    changed = changed.replace(
        "CREATE TABLE sums",
        "CREATE TABLE others (customer STRING, spent INT) WITH ('connector' = 'print');\nCREATE TABLE sums",
    )

    async def work(editor: Editor) -> None:
        await editor.open(TABLES + INSERT)
        assert [label for *_, label in await editor.hints()] == ["kept", "kept"]
        await editor.change(changed)
        assert [(line, label) for line, _, label in await editor.hints()] == [(3, "kept"), (3, "mixed")]
        (lens,) = await editor.client.text_document_code_lens_async(lsp.CodeLensParams(editor.document)) or ()
        assert lens.command is not None
        assert f"compared with version 0 of the job in {shown})" in lens.command.title

    shown = str(Path(".everfold", "job"))
    edit(tmp_path, work)
    shown = moved = str(tmp_path.parent / f"{tmp_path.name}-elsewhere")
    (tmp_path / ".everfold" / "job").rename(moved)
    edit(tmp_path, work, jobs={"job.sql": moved})


def test_hints_can_be_turned_off(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "job.sql").write_text("SELECT COUNT(*) AS n FROM t")
    git(tmp_path, "add", "job.sql")
    git(tmp_path, "commit", "-qm", "one")

    async def work(editor: Editor) -> None:
        await editor.open("SELECT COUNT(*) AS n FROM t")
        assert await editor.hints() == []

    edit(tmp_path, work, compare="off")


def test_the_server_imports_no_engine() -> None:
    code = (
        "import sys; import everfold.lsp.server; "
        "print([each for each in ('pyspark', 'polars', 'duckdb', 'pandas') if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\n"


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text(
        "import importlib.util as u\nold = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'pygls' else old(name, *rest)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "everfold", "lsp"],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'everfold[lsp]'" in done.stderr
