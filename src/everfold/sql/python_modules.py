"""Load the Python object named by CREATE FUNCTION … AS 'module.attribute'."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from everfold.errors import Diagnostic, Span, SqlError, suggest_name
from everfold.udf.failure import user_traceback


def load_object(identifier: str, folder: Path, span: Span | None) -> object:
    """Return the object that `module.attribute` names.

    Modules are searched for as `python script.py` does: in the script's folder first. Raises
    SqlError `python-module` or `python-attribute`.
    """
    name, _, attribute = identifier.rpartition(".")
    if not name or not attribute:
        raise SqlError.of(
            "python-module",
            f"`{identifier}` does not name a Python function",
            span,
            "write 'module.attribute': the module's name, a dot, and the function's name in it",
        )
    module = _module(name, folder, span)
    try:
        return getattr(module, attribute)
    except AttributeError:
        near = suggest_name(attribute, [each for each in vars(module) if not each.startswith("_")])
        message = f"the Python module `{name}` ({module.__file__}) has no `{attribute}`"
        raise SqlError.of("python-attribute", message, span, near) from None


def _module(name: str, folder: Path, span: Span | None) -> ModuleType:
    with _first_on_path(folder.resolve()):
        _forget_namesakes(name, folder.resolve())
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
                message = f"no Python module is named `{error.name}`"
                help_ = f"modules are searched for in {folder.resolve()} and in the installed Python packages"
                raise SqlError.of("python-module", message, span, help_) from None
            reason = " ".join(str(error).split())
            message = f"the Python module `{name}` cannot be imported: {type(error).__name__}: {reason}"
            raise SqlError(Diagnostic("python-module", message, span, notes=user_traceback(error))) from error


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _forget_namesakes(name: str, folder: Path) -> None:
    """Unload a module of the same name from another folder, such as that of another script."""
    top = name.partition(".")[0]
    if not ((folder / f"{top}.py").is_file() or (folder / top).is_dir()):
        return
    known = sys.modules.get(top)
    locations = [getattr(known, "__file__", None), *getattr(known, "__path__", ())]
    if known is None or any(place and Path(place).is_relative_to(folder) for place in locations):
        return
    for each in [each for each in sys.modules if each == top or each.startswith(f"{top}.")]:
        del sys.modules[each]
