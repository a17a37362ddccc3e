"""The prompt: reads inputs from a terminal, with completion, colors and history, and runs them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, completion_is_selected, has_completions
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import DynamicLexer, Lexer, PygmentsLexer, SimpleLexer
from prompt_toolkit.output import Output
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts import CompleteStyle

from everfold.completion.words import is_complete
from everfold.files import cache_folder
from everfold.shell.history import PrivateHistory

if TYPE_CHECKING:
    from everfold.shell.commands import Shell

T = TypeVar("T")
PROMPT, CONTINUATION = "everfold> ", "       -> "
_REFRESH_S = 1.0


class Loading(Generic[T]):
    """A value that is made in a thread, so that the prompt appears at once.

    then: runs in the thread afterwards, while the value is in use.
    """

    def __init__(self, make: Callable[[], T], then: Callable[[], None] = lambda: None) -> None:
        self._make, self._then = make, then
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._made = threading.Event()
        self._thread = threading.Thread(target=self._run, name="everfold-shell-load", daemon=True)

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread.ident is None:
            self._thread.start()

    def _run(self) -> None:
        try:
            self._value.append(self._make())
        except BaseException as error:
            self._error = error
        finally:
            self._made.set()
        self._then()

    @property
    def is_ready(self) -> bool:
        """Whether the value exists."""
        return bool(self._value)

    def get(self) -> T:
        """Wait for the value. Raises what its making has raised."""
        self.start()
        self._made.wait()
        if self._error is not None:
            raise self._error
        return self._value[0]


class _Completions(Completer):
    """Completions of a shell, as the prompt wants them."""

    def __init__(self, shell: Loading[Shell]) -> None:
        self._shell = shell

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        from everfold.shell.commands import list_commands
        from everfold.shell.completion import Completer as Core

        core = Core(self._shell.get().session, list_commands)
        for each in core.complete(document.text_before_cursor, document.text_after_cursor):
            meaning = f"{each.kind}  {each.meaning}" if each.meaning else each.kind
            yield Completion(each.text, -each.length, display_meta=meaning)


class Prompt:
    """The loop of a shell: reads an input, runs it, and again.

    input, output: of the terminal, or of a test.
    """

    def __init__(self, shell: Loading[Shell], input: Input | None = None, output: Output | None = None) -> None:
        self._shell = shell
        self._plain = SimpleLexer()
        self._colored: Lexer | None = None
        self._input, self._output = input, output
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=CONTINUATION,
            lexer=DynamicLexer(self._lexer),
            completer=_Completions(shell),
            complete_in_thread=True,
            complete_while_typing=True,
            complete_style=CompleteStyle.COLUMN,
            auto_suggest=AutoSuggestFromHistory(),
            history=_open_history(),
            key_bindings=_key_bindings(),
            bottom_toolbar=self._toolbar,
            refresh_interval=_REFRESH_S,
            enable_open_in_editor=False,
            input=input,
            output=output,
        )
        # Importing before the prompt is on the screen would delay it.
        self._session.app.after_render += lambda _: shell.start()

    def _lexer(self) -> Lexer:
        """Return the lexer: without colors until the registries are loaded."""
        if not self._shell.is_ready:
            return self._plain
        if self._colored is None:
            from everfold.shell.highlighting import EverfoldLexer

            self._colored = PygmentsLexer(EverfoldLexer)
        return self._colored

    def _toolbar(self) -> str:
        if not self._shell.is_ready:
            return " \\? help"
        session = self._shell.get().session
        parts = [f"engine: {session.settings.engine or 'auto'}", session.settings.runtime_mode]
        if session.engines.spark_state != "off":
            parts.append(f"Spark: {session.engines.spark_state}")
        if running := session.jobs.count_running():
            parts.append(f"{running} job{'' if running == 1 else 's'}")
        return " " + " · ".join([*parts, "\\? help"])

    def run(self) -> None:
        """Read and run inputs until the user leaves."""
        text = ""
        while True:
            try:
                with patch_stdout(raw=True):
                    text = self._session.prompt(default=self._take_next_input())
            except KeyboardInterrupt:
                continue
            except EOFError:
                text = "\\q"
            shell = self._shell.get()
            with _interrupts(shell.session.cancel):
                shell.handle(text)
                shell.session.report_jobs()
            if shell.is_over:
                return

    def _take_next_input(self) -> str:
        if not self._shell.is_ready:
            return ""
        shell = self._shell.get()
        text, shell.next_input = shell.next_input, ""
        return text

    def ask(self, question: str, answers: Mapping[str, str], default: str) -> str:
        """Ask the user for one of several answers, or a prefix of one."""
        width = max(map(len, answers))
        lines = [question, *(f"  {answer:<{width}}  {meaning}" for answer, meaning in answers.items())]
        print_formatted_text("\n".join(lines), output=self._session.app.output)
        session: PromptSession[str] = PromptSession(history=InMemoryHistory(), input=self._input, output=self._output)
        while True:
            try:
                text = session.prompt(f"[{'/'.join(answers)}] ({default}): ").strip().lower()
            except (KeyboardInterrupt, EOFError):
                return default
            found = [each for each in answers if each.startswith(text or default)]
            if text in answers or len(found) == 1:
                return text if text in answers else found[0]


def _open_history() -> History:
    try:
        return PrivateHistory(cache_folder() / "shell" / "history")
    except OSError:
        return InMemoryHistory()


def _is_command(text: str) -> bool:
    first, _, rest = text.strip().partition(" ")
    return first.startswith("\\") or (not rest and first.lower() in ("quit", "exit", "help", "clear"))


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @Condition
    def runs() -> bool:
        from prompt_toolkit.application import get_app

        text = get_app().current_buffer.text
        return not text.strip() or is_complete(text) or _is_command(text)

    @bindings.add("enter", filter=has_completions & completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    @bindings.add("enter", filter=runs & ~completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return bindings


@contextmanager
def _interrupts(cancel: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C cancel what runs in the block, instead of raising KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: cancel())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
