"""Functions that a later process can find: `module:name`, or `script.py:name` where the program is a script."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from acode.errors import CannotContinue
from acode.library import values

SCRIPT = "acode_program"  # the module name under which a script is loaded: never __main__, or it would start itself


def name_to_find(function: Callable[..., Any]) -> str | None:
    """Its name for a later process; None where no other process could find it."""
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:  # made inside another function
        return None
    if function.__module__ not in (values.MAIN, SCRIPT):
        return f"{function.__module__}:{name}"
    script = getattr(sys.modules.get(function.__module__), "__file__", None)
    return f"{os.path.realpath(script)}:{name}" if script else None


def find_function(name: str, what: str) -> Callable[..., Any]:
    place, _, path = name.rpartition(":")
    try:
        found: Any = script_at(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, OSError, SyntaxError) as error:
        raise CannotContinue(
            f"{what}, {name}, cannot be found: {error}",
            hint="Call acode where the program can be imported: in its environment, with PYTHONPATH if need be.",
        ) from error
    if not callable(found):
        raise CannotContinue(f"{what}, {name}, is no function")
    return cast("Callable[..., Any]", found)


def script_at(path: Path) -> ModuleType:
    """The script as a module: the one that is running, or loaded without being started."""
    main = sys.modules.get(values.MAIN)
    running = getattr(main, "__file__", None)
    if main is not None and running and os.path.realpath(running) == os.fspath(path):
        return main
    spec = importlib.util.spec_from_file_location(SCRIPT, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[SCRIPT] = module
    values.stands_for_main(module)
    spec.loader.exec_module(module)
    return module
