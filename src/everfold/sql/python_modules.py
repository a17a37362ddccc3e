"""Find the Python object named by CREATE FUNCTION … AS 'module.attribute'.

Its module is imported to run a script. To judge a script, it is only read: `everfold.udf.reading`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from everfold.errors import Diagnostic, Span, SqlError, suggest_name
from everfold.udf.failure import user_traceback
from everfold.udf.reading import FunctionReader, ModuleFailure, NoModuleError, UnknownError


def load_object(identifier: str, folder: Path, span: Span | None) -> object:
    """Return the object that `module.attribute` names.

    Modules are searched for as `python script.py` does: in the script's folder first. Raises
    SqlError `python-module` or `python-attribute`.
    """
    name, attribute = _split_identifier(identifier, span)
    module = _module(name, folder, span)
    try:
        return getattr(module, attribute)
    except AttributeError:
        public = [each for each in vars(module) if not each.startswith("_")]
        raise _no_attribute_error(name, getattr(module, "__file__", None), attribute, public, span) from None


def read_object(identifier: str, reader: FunctionReader, span: Span | None) -> object:
    """Return a stand-in for the object that `module.attribute` names. Its module is not run.

    Raises SqlError as `load_object`, and `unreadable-function` if the module must be run to know
    what the function is.
    """
    name, attribute = _split_identifier(identifier, span)
    try:
        return reader.read(name, attribute)
    except AttributeError:
        file = reader.find_file(name)
        raise _no_attribute_error(name, file, attribute, reader.list_names(name), span) from None
    except NoModuleError as error:
        raise _no_module_error(error.args[0], reader.folder, span) from None
    except ModuleFailure as failure:
        message = f"the Python module `{name}` cannot be imported: {failure.reason}"
        raise SqlError(Diagnostic("python-module", message, span, notes=failure.notes)) from None
    except UnknownError as error:
        raise SqlError.of(
            "unreadable-function",
            f"the types of the Python function `{identifier}` are only known when {error.value.position} is run, "
            "and functions are not run here",
            span,
            "declare them with constants, such as result_type='BIGINT'. If you trust the module, use "
            "`everfold check` or `explain` with --import-functions",
        ) from None


def _split_identifier(identifier: str, span: Span | None) -> tuple[str, str]:
    name, _, attribute = identifier.rpartition(".")
    if not all(name.split(".")) or not attribute:
        raise SqlError.of(
            "python-module",
            f"`{identifier}` does not name a Python function",
            span,
            "write 'module.attribute': the module's name, a dot, and the function's name in it",
        )
    return name, attribute


def _no_module_error(name: str, folder: Path, span: Span | None) -> SqlError:
    help_ = f"modules are searched for in {folder} and in the installed Python packages"
    return SqlError.of("python-module", f"no Python module is named `{name}`", span, help_)


def _no_attribute_error(
    name: str, file: Path | str | None, attribute: str, public: list[str], span: Span | None
) -> SqlError:
    message = f"the Python module `{name}` ({file}) has no `{attribute}`"
    return SqlError.of("python-attribute", message, span, suggest_name(attribute, public))


def _module(name: str, folder: Path, span: Span | None) -> ModuleType:
    with _first_on_path(folder.resolve()):
        _forget_namesakes(name, folder.resolve())
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
                raise _no_module_error(error.name, folder.resolve(), span) from None
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
