"""Finding the user's function: ``package.module:function`` or ``path/file.py:function``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from flwr_mel._text import message
from flwr_mel._validate import Phrase, complain

_FORM = "module:function or path/file.py:function"


def load_function(where: str) -> Callable[..., Any]:
    """Import a training function.

    Parameters
    ----------
    where : str
        ``module:function`` or ``path/file.py:function``. It runs with the rights of the caller, as any
        import does.

    Raises
    ------
    ValueError
        Says what is wrong: the form, the file, its import, the name, or the arguments.
    """
    source, colon, name = where.rpartition(":")
    if not colon or not source or not name.isidentifier():
        raise complain("train", _FORM, where)
    try:
        module = _from_file(Path(source)) if source.endswith(".py") else _from_path(source)
    except (Exception, SystemExit) as error:
        got = Phrase(f"{type(error).__name__} from {source}: {message(error)}")
        raise complain("train", "in a module that can be imported", got) from error
    function = getattr(module, name, None)
    if function is None:
        has = [
            n for n, x in vars(module).items() if inspect.isfunction(x) and x.__module__ == module.__name__
        ]
        listed = f"It has: {', '.join(sorted(has)[:10])}." if has else "It has no functions."
        raise complain("train", f"a function of {source}", name, listed)
    return check_function(function)


def check_function(function: object) -> Callable[..., Any]:
    """Return a callable that takes samples and epochs.

    Parameters
    ----------
    function : object
        What was given.
    """
    rule = "a function that can be called as train(samples=100, epochs=1)"
    if not callable(function):
        raise complain("train", rule, function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return function
    try:
        signature.bind(samples=1, epochs=1)
    except TypeError as error:
        raise complain("train", rule, f"train{signature}", f"{str(error).capitalize()}.") from None
    return function


def _from_path(name: str) -> ModuleType:
    # As `python -m` does, so that an app in the working directory is found.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError("there is no such file")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # its neighbours, as when Python runs the file
    name = path.stem
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"flwr_mel_profiled_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("Python cannot load it")
    module = importlib.util.module_from_spec(spec)
    # Registered as an import would, which pickling and worker processes of the function rely on.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
