"""Objects that settings name as `package.module:name`."""

import contextlib
import dataclasses
import functools
import importlib
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import cloudpickle

from ..errors import CallboardError, message_of, suggestion
from ..messages.caller_words import is_by_command
from .object_origins import MARK, object_origin, owner_of
from .own_modules import is_own, is_own_file

_LIBRARY = __name__.partition(".")[0]
_OF_PROGRAM = "__main__:"
"""Beginning of the names of what the program that was started, or a notebook, defines itself."""
_PROGRAM = uuid.uuid4().hex
"""Id of the program; processes that are forked from it have the same, and the same objects."""
_received: dict[str, Any] = {}
"""Objects that the program of the run has defined, by name, in another process."""
_NETWORKS = tuple((package, name) for package in ("keras", "tensorflow") for name in ("Layer", "Module"))
_USABLE_BASES: dict[str, tuple[tuple[str, str], ...]] = {
    "environment": (
        *(("gymnasium", name) for name in ("Env", "VectorEnv")),
        ("gym", "Env"),
        ("dm_env", "Environment"),
        *(("pettingzoo", name) for name in ("ParallelEnv", "AECEnv")),
        *((_LIBRARY, name) for name in ("BatchedEnvironment", "MultiAgentEnvironment")),
    ),
    "wrapper": (("gymnasium", "Wrapper"),),
    "torso": _NETWORKS,
    "core": ((_LIBRARY, "Core"),),
    "head": _NETWORKS,
    "critic_head": _NETWORKS,
    "optimizer": tuple((package, "Optimizer") for package in ("keras", "tensorflow")),
    "agent": ((_LIBRARY, "Agent"),),
    "callbacks": ((_LIBRARY, "Callbacks"),),
    "launcher": ((_LIBRARY, "Launcher"),),
    "logger": ((_LIBRARY, "MetricLogger"),),
}
"""Package and name of base classes whose subclasses settings may name, wherever they are installed.

By what the setting is for: a layer of Keras that loads a graph from a file would do so as an environment too, long
before its type is found to be wrong.
"""

_LOADING = ("JaxLayer", "KerasLayer", "ReloadedLayer", "TFSMLayer", "TorchModuleWrapper")
"""Layers that load a graph, or code, from a file or an address that an option names."""
_NAMING = ("class_name", "registered_name", "function_type")
"""Keys by which Keras reads a class, a function or bytecode from a dictionary, in the versions that import modules."""


def import_object(kind: str, path: str) -> Any:
    """Imports the object that a setting names as `package.module:name`, or `package.module:Class.name`.

    Args:
      kind: what the object is meant to be, such as `agent`, for messages.
      path: the setting.

    Raises:
      CallboardError: as in `import_module`; or the module has no such object, or `check_usable` refuses it.
    """
    if path in _received:
        # It was sent by the program of this run, not found under a name that somebody else has written.
        return _received[path]
    module_name, _, name = path.partition(":")
    module = import_module(kind, path, module_name)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None and path.startswith(_OF_PROGRAM) and is_by_command():
        raise of_program(kind, path)
    if found is None:
        hint = suggestion(name, _usable_names(kind, module), f"define it in {module_name}, or name another object")
        raise CallboardError(f"unknown {kind} {path!r}; module {module_name!r} has no {name!r}, {hint}")
    check_usable(kind, path, found)
    return found


def importable_name(found: Any) -> str | None:
    """Returns the name by which a setting can name a class or a function, or None if it cannot be imported by one."""
    module, path = (getattr(found, attribute, None) for attribute in ("__module__", "__qualname__"))
    if not isinstance(module, str) or not isinstance(path, str):
        return None
    try:
        same = functools.reduce(getattr, path.split("."), sys.modules[module]) == found
    except (KeyError, AttributeError):
        return None
    return f"{module}:{path}" if same else None


def of_program(kind: str, path: str) -> CallboardError:
    """Returns the error for what only the program that started a run has."""
    return CallboardError(
        f"{kind} {path!r} is defined in the program that started the run, which commands cannot import; there, call "
        "callboard.evaluate(RUN), callboard.load_policy(RUN) or callboard.run(experiment, resume=True)"
    )


def _usable_names(kind: str, module: ModuleType) -> list[str]:
    """Returns the public classes and functions of a module that `import_object` does not refuse."""
    found = []
    for name, one in vars(module).items():
        if callable(one) and not name.startswith("_"):
            with contextlib.suppress(CallboardError):
                check_usable(kind, name, one)
                found.append(name)
    return found


def check_module_name(kind: str, setting: str, module: str) -> None:
    """Raises `CallboardError` for the name of a module from which nothing may be named, before it is imported."""
    if module.endswith(".py"):
        folder, _, file = module.rpartition("/")
        where = f", and start in {folder}" if folder else ""
        found = setting.replace(module, file.removesuffix(".py"), 1)
        raise CallboardError(f"{kind} {setting!r} names a file: write its module, {found}{where}")
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names - {"__main__"} or module.endswith(".__main__"):
        what = "a program" if module.endswith(".__main__") else "part of Python's standard library"
        raise CallboardError(
            f"{kind} {setting!r} is refused: {module!r} is {what}, which contains nothing that a run can use; name a "
            "module of your own"
        )


def import_module(kind: str, setting: str, module: str) -> ModuleType:
    """Imports the module that `setting` names.

    Raises:
      CallboardError: the module, or one that it imports, does not exist, or it belongs to the standard library.  Other
        errors of the module propagate with their traceback, for its author.
    """
    check_module_name(kind, setting, module)
    try:
        return importlib.import_module(module)
    except SystemExit as error:
        raise CallboardError(
            f"{kind} {setting!r} cannot be imported: its import calls sys.exit({message_of(error)}); put what is not "
            'for import under `if __name__ == "__main__":`'
        ) from error
    except ImportError as error:
        reason = " ".join(message_of(error).split())
    except (ValueError, TypeError):  # Raised for names such as "" and ".a".
        if module and not module.startswith("."):
            raise
        reason = f"{module!r} is not the name of a module"
    raise CallboardError(f"{kind} {setting!r} cannot be imported: {reason}")


def check_usable(kind: str, setting: str, found: Any) -> None:
    """Rejects objects of installed packages that were not made to be part of a run.

    A recipe or a run directory may come from somebody else, and installed packages contain much that runs arbitrary
    code, such as `numpy.distutils.exec_command:exec_command`.  Accepted are:

    - what is defined in a module of the user's own, see `own_modules.is_own`, also a `functools.partial` of something
      that is not in the standard library;
    - classes of an installed package that are what the setting is for (environments, wrappers, networks, optimizers,
      agents, callbacks, loggers or launchers) by their base classes;
    - what an installed package has marked with `nameable`;
    - what cannot be called, whose type the caller refuses.

    Args:
      kind: what the object is meant to be, for the message.
      setting: the setting that names it, such as `os:system`.
      found: the object.

    Raises:
      CallboardError: the object is refused.
    """
    check_origin(kind, setting, object_origin(setting, found))


def check_origin(kind: str, setting: str, origin: Mapping[str, Any]) -> None:
    """Does the same for an object of which only its origin is known, see `object_origins`, as of one in a worker."""
    owner = origin["owner"]

    def is_own_module(module: str) -> bool:
        return is_own_file(module, origin["files"][module], origin["installed"])

    if not origin["callable"] or is_own_module(owner) or origin["marked"] or _has_usable_base(kind, origin["classes"]):
        return
    package = owner.partition(".")[0]
    in_standard_library = package in sys.stdlib_module_names
    if origin["partial"] and not in_standard_library and is_own_module(setting.partition(":")[0]):
        return
    where = "Python's standard library" if in_standard_library else f"the package {package}"
    raise CallboardError(
        f"{kind} {setting!r} is refused: it belongs to {where}, and only environments, wrappers, networks, optimizers "
        "and the like are taken from there; call it in a function of your own module, and name that"
    )


def check_options(kind: str, setting: str, found: Any, options: Any) -> None:
    """Rejects options of an installed class that name another class or function in a dictionary, as Keras takes them.

    Args:
      kind: as in `check_usable`.
      setting: as in `check_usable`.
      found: the object that receives the options.
      options: plain values of a settings file.

    Raises:
      CallboardError: an option, at any depth, is such a dictionary.
    """
    if is_own(owner_of(found)):
        return
    inner = options.values() if isinstance(options, Mapping) else options if isinstance(options, list | tuple) else ()
    named = [key for key in _NAMING if isinstance(options, Mapping) and key in options]
    if named:
        raise CallboardError(
            f"{kind} {setting!r} is refused: {named[0]!r} in its options names a class or function, which an installed "
            "class would make; call it in a function of your own module, and name that"
        )
    for value in inner:
        check_options(kind, setting, found, value)


def nameable(found: Any) -> Any:
    """Marks a function or class of an installed package as one that settings may name; a decorator."""
    setattr(found, MARK, True)
    return found


def _has_usable_base(kind: str, classes: Sequence[Sequence[str]]) -> bool:
    if any(name in _LOADING for _, name in classes):
        return False
    return any((package, name) in _USABLE_BASES.get(kind, ()) for package, name in classes)


def pickled_with_program(value: Any) -> bytes:
    """Pickles settings together with what they name in the program that was started, for its other processes.

    These objects are pickled by value: another process has another program.

    Args:
      value: settings of any kind, which may name `__main__:Class` anywhere, or hold instances of such classes.
    """
    named = {name: found for name, found in _program_objects(value) if found is not None}
    return cloudpickle.dumps((_PROGRAM, cloudpickle.dumps(named), value))


def unpickle_with_program(pickled: bytes) -> Any:
    """Restores objects that `pickled_with_program` has pickled; `import_object` then finds them by their names."""
    program, named, value = cloudpickle.loads(pickled)
    if program != _PROGRAM:
        _received.update(cloudpickle.loads(named))
    return value


def _program_objects(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the names in settings that begin with `__main__:`, with what they name, or None."""
    kind = type(value)
    if isinstance(value, str):
        for name in map(str.strip, value.split(",")):
            if name.startswith(_OF_PROGRAM):
                yield name, _received[name] if name in _received else _of_this_program(name)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _program_objects(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _program_objects(item)
    elif kind.__module__ == "__main__":
        yield f"{_OF_PROGRAM}{kind.__qualname__}", kind
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _program_objects(getattr(value, field.name, None))


def _of_this_program(name: str) -> Any:
    found: Any = sys.modules["__main__"]
    for part in name.removeprefix(_OF_PROGRAM).split("."):
        found = getattr(found, part, None)
    return found
