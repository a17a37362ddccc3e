"""The language server: answers an editor's requests about open scripts, over stdin and stdout.

It starts no JVM and imports no PySpark, and nothing but the protocol is written to stdout.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from everfold import __version__
from everfold.completion.engine import Completer
from everfold.completion.words import split_statements
from everfold.error_codes import find_code
from everfold.errors import Diagnostic, EverfoldError
from everfold.files import cache_folder, make_private_folder, write_atomically
from everfold.lsp.analysis import Analysis, analyze
from everfold.lsp.hints import Comparison, compare_with_git, compare_with_jobs, list_hints, summarize
from everfold.lsp.hover import describe, describe_function, signature_of
from everfold.lsp.names import find_definition, find_reference
from everfold.lsp.positions import Positions
from everfold.sql.formatting import format_script

Compare: TypeAlias = Literal["auto", "job", "git", "off"]

_KINDS = {
    "column": lsp.CompletionItemKind.Field,
    "table": lsp.CompletionItemKind.Class,
    "view": lsp.CompletionItemKind.Interface,
    "function": lsp.CompletionItemKind.Function,
    "keyword": lsp.CompletionItemKind.Keyword,
    "statement": lsp.CompletionItemKind.Keyword,
    "type": lsp.CompletionItemKind.TypeParameter,
    "option": lsp.CompletionItemKind.Property,
    "connector": lsp.CompletionItemKind.Module,
    "format": lsp.CompletionItemKind.EnumMember,
    "value": lsp.CompletionItemKind.Value,
}


@dataclass(slots=True)
class Settings:
    """The configuration of a client, section `everfold`.

    dialect: of scripts at their beginning. compare: with what hints compare a script. jobs: the job
    directories of scripts, by the end of their path. docs: the address of the documentation site.
    """

    dialect: str = "flink"
    compare: Compare = "auto"
    jobs: dict[str, str] = field(default_factory=dict)
    docs: str = ""

    @classmethod
    def parse(cls, value: object) -> Settings:
        """Read a configuration; what is not valid in it has no effect."""
        given = value if isinstance(value, dict) else {}
        inner = given.get("everfold", given)
        given = inner if isinstance(inner, dict) else {}
        found = cls()
        if given.get("dialect") in ("flink", "lenses"):
            found.dialect = given["dialect"]
        if given.get("compare") in get_args(Compare):
            found.compare = given["compare"]
        if isinstance(given.get("jobs"), dict):
            found.jobs = {str(name): str(folder) for name, folder in given["jobs"].items()}
        if isinstance(given.get("docs"), str):
            found.docs = given["docs"].rstrip("/")
        return found

    def job_of(self, script: Path) -> Path | None:
        """Return the job directory of a script, if it is configured. `~` is the home folder."""
        for name, folder in self.jobs.items():
            if script.as_posix() == name or script.as_posix().endswith("/" + name.lstrip("/")):
                return script.parent / Path(folder).expanduser()
        return None


class EverfoldServer(LanguageServer):
    """A server with the analysis of each open script."""

    def __init__(self) -> None:
        super().__init__("everfold", __version__)
        self.settings = Settings()
        self._analyses: dict[str, tuple[int | None, Analysis]] = {}
        self._comparisons: dict[str, tuple[Analysis, list[Comparison]]] = {}

    def analysis(self, uri: str) -> Analysis:
        """Return the analysis of the current text of a script."""
        document = self.workspace.get_text_document(uri)
        known = self._analyses.get(uri)
        if known is not None and known[0] == document.version and known[1].text == document.source:
            return known[1]
        script = self.path_of(uri)
        found = analyze(document.source, script.name, script.parent, self.settings.dialect)
        self._analyses[uri] = document.version, found
        return found

    def forget(self, uri: str | None = None) -> None:
        """Forget the analysis of a script, or of all."""
        if uri is None:
            self._analyses.clear()
            self._comparisons.clear()
        else:
            self._analyses.pop(uri, None)
            self._comparisons.pop(uri, None)

    @staticmethod
    def path_of(uri: str) -> Path:
        """Return the path of a script; if it was never saved, one in the current folder."""
        path = to_fs_path(uri) if uri.startswith("file:") else None
        return Path(path) if path else Path.cwd() / "untitled.sql"

    def positions(self, text: str) -> Positions:
        """Return the positions in a text, in the code units of the client."""
        return Positions(text, self.workspace.position_encoding)

    def publish(self, uri: str) -> None:
        """Send the errors of a script to the client."""
        analysis = self.analysis(uri)
        positions = self.positions(analysis.text)
        version = self.workspace.get_text_document(uri).version
        found = [self._diagnostic(each, positions) for each in analysis.errors]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, found, version))

    def _diagnostic(self, error: Diagnostic, positions: Positions) -> lsp.Diagnostic:
        where = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 1))
        if error.span is not None and error.span.text:
            where = positions.range(error.span)
        lines = [error.message, *(f"note: {note}" for note in error.notes)]
        if error.help:
            lines.append(f"help: {error.help}")
        page = lsp.CodeDescription(self._page_of(error.code))
        return lsp.Diagnostic(
            where,
            "\n".join(lines),
            lsp.DiagnosticSeverity.Error,
            error.code,
            page if page.href else None,
            source="everfold",
        )

    def _page_of(self, code: str) -> str:
        """Return the address of a code's page: on the documentation site, or a file."""
        if self.settings.docs:
            return f"{self.settings.docs}/errors/#{code}"
        entry = find_code(code)
        if entry is None:
            return ""
        file = cache_folder() / "pages" / __version__ / f"{code}.md"
        try:
            if not file.exists():
                make_private_folder(file.parent)
                write_atomically(file, f"# {entry.code}\n\n{entry.page}\n")
        except OSError:
            return ""
        return file.resolve().as_uri()

    def compare(self, uri: str) -> list[Comparison]:
        """Compare a script with its jobs, or with its version in git: again when it is saved."""
        analysis = self.analysis(uri)
        known = self._comparisons.get(uri)
        if known is None or known[0] is not analysis:
            known = self._comparisons[uri] = analysis, self._compare(uri, analysis)
        return known[1]

    def _compare(self, uri: str, analysis: Analysis) -> list[Comparison]:
        script, how = self.path_of(uri), self.settings.compare
        if how == "off" or analysis.errors:
            return []
        found = compare_with_jobs(analysis, script, self.settings.job_of(script)) if how != "git" else []
        return found or (compare_with_git(analysis, script) if how in ("auto", "git") else [])


def create_server() -> EverfoldServer:
    """Return a server with all of its features."""
    server = EverfoldServer()

    @server.feature(lsp.INITIALIZE)
    def initialize(params: lsp.InitializeParams) -> None:
        server.settings = Settings.parse(params.initialization_options)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configure(params: lsp.DidChangeConfigurationParams) -> None:
        if not isinstance(params.settings, dict) or "everfold" not in params.settings:
            return  # it is about other servers
        server.settings = Settings.parse(params.settings)
        server.forget()
        for uri in server.workspace.text_documents:
            server.publish(uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: lsp.DidOpenTextDocumentParams) -> None:
        server.publish(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: lsp.DidChangeTextDocumentParams) -> None:
        server.publish(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: lsp.DidSaveTextDocumentParams) -> None:
        server.forget(params.text_document.uri)
        server.publish(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: lsp.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)
        server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(params.text_document.uri, []))

    @server.feature(
        lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "'"], resolve_provider=True)
    )
    def complete(params: lsp.CompletionParams) -> lsp.CompletionList:
        return lsp.CompletionList(False, list(_complete(server, params)))

    @server.feature(lsp.COMPLETION_ITEM_RESOLVE)
    def resolve(item: lsp.CompletionItem) -> lsp.CompletionItem:
        text = describe_function(item.label.rstrip("("))
        if item.kind is lsp.CompletionItemKind.Function and text:
            item.documentation = lsp.MarkupContent(lsp.MarkupKind.Markdown, text)
        return item

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        analysis = server.analysis(params.text_document.uri)
        positions = server.positions(analysis.text)
        found = describe(analysis, positions.offset(params.position))
        if found is None:
            return None
        text, span = found
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), positions.range(span))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        uri = params.text_document.uri
        analysis = server.analysis(uri)
        positions = server.positions(analysis.text)
        reference = find_reference(analysis, positions.offset(params.position))
        span = None if reference is None else find_definition(analysis, reference)
        return None if span is None else lsp.Location(uri, positions.range(span))

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def format_(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        text = server.workspace.get_text_document(params.text_document.uri).source
        try:
            formatted = format_script(text, dialect=server.settings.dialect)
        except EverfoldError:  # the errors are shown already
            return []
        return [] if formatted == text else [lsp.TextEdit(server.positions(text).whole(), formatted)]

    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def inlay_hints(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        uri = params.text_document.uri
        positions = server.positions(server.analysis(uri).text)
        first, last = positions.offset(params.range.start), positions.offset(params.range.end)
        found = (hint for each in server.compare(uri) for hint in list_hints(each))
        return [
            lsp.InlayHint(positions.position(each.offset), each.label, tooltip=each.reason, padding_left=True)
            for each in found
            if first <= each.offset <= last
        ]

    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    def code_lenses(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        uri = params.text_document.uri
        positions = server.positions(server.analysis(uri).text)
        found = []
        for comparison in server.compare(uri):
            summary = summarize(comparison)
            start = positions.position(summary.offset)
            command = lsp.Command(f"{summary.text} (compared with {comparison.base})", "")
            found.append(lsp.CodeLens(lsp.Range(start, start), command))
        return found

    return server


def _complete(server: EverfoldServer, params: lsp.CompletionParams) -> Iterable[lsp.CompletionItem]:
    analysis = server.analysis(params.text_document.uri)
    positions = server.positions(analysis.text)
    offset = positions.offset(params.position)
    statement = next((each for each in split_statements(analysis.text) if each.start <= offset <= each.end), None)
    end = len(analysis.text) if statement is None else statement.end
    found = Completer(analysis.session.catalog).complete(analysis.text[:offset], analysis.text[offset:end])
    for number, each in enumerate(found):
        where = lsp.Range(positions.position(offset - each.length), params.position)
        detail = signature_of(each.text.rstrip("(")) if each.kind == "function" else ""
        yield lsp.CompletionItem(
            each.text,
            kind=_KINDS.get(each.kind, lsp.CompletionItemKind.Text),
            detail=detail or each.meaning or each.kind,
            sort_text=f"{number:05d}",
            filter_text=each.text,
            text_edit=lsp.TextEdit(where, each.text),
        )


def serve() -> None:
    """Serve one client over stdin and stdout, until it disconnects.

    What anything prints goes to stderr: stdout belongs to the protocol.
    """
    protocol = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = sys.stderr
    create_server().start_io(sys.stdin.buffer, protocol)
