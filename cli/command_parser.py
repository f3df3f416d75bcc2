"""A parser for the options of the commands themselves: argparse, whose values are read as those of settings are."""

import argparse
import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from ..errors import CallboardError, did_you_mean, nearest, suggestion
from ..launch.experiments.option_parsing import converted_text, option_name
from ..launch.experiments.settings import plain
from ..messages import foreign_names
from ..settings.nested_settings import Field
from ..settings.setting_descriptions import described

_READ = (int, float, pathlib.Path)
"""Types of arguments that are read as settings; another type is a function of the argument's text."""


class _Incomplete(Exception):
    """A required argument is missing."""


class CommandParser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `CallboardError` for wrong usage and accepts no abbreviated options.

    Attributes:
      options: the options that it has, by their names such as `--json`.
    """

    def __init__(self, prog: str, **settings: Any):
        self.options: dict[str, argparse.Action] = {}
        self._descriptions: dict[argparse.Action, str] = {}
        super().__init__(prog, allow_abbrev=False, exit_on_error=False, **settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Adds an argument as argparse does; its `type` or its `choices` are read, and described, as a setting's."""
        choices, kind = settings.pop("choices", None), settings.get("type")
        if choices is not None:
            settings = {"metavar": f"{{{','.join(choices)}}}", **settings}
            settings["type"] = functools.partial(self._chosen, names[-1], choices)
        elif kind in _READ:
            settings["type"] = functools.partial(_read, names[-1], kind)
        action = super().add_argument(*names, **settings)
        self.options |= dict.fromkeys(action.option_strings, action)
        what = _one_of(choices) if choices is not None else action.help or action.dest
        self._descriptions[action] = action.option_strings[-1] if action.option_strings else what
        return action

    def add_fields(self, fields: Mapping[str, Field]) -> None:
        """Adds an option for every field of a dataclass, with its description, type and default as help.

        A flag has `--NAME` and `--no-NAME`; an option of a list of texts may be given several times.
        """
        for key, field in fields.items():
            option = option_name(key)
            shown = "needed" if field.default is dataclasses.MISSING else json.dumps(plain(field.default))
            settings: dict[str, Any] = {"dest": key, "default": argparse.SUPPRESS}
            text = f"{field.text} ({shown})".replace("%", "%%")
            if field.hint is bool:
                self.add_argument(option, action="store_const", const=True, help=text, **settings)
                without = option_name(f"no_{key}")
                self.add_argument(without, action="store_const", const=False, help=argparse.SUPPRESS, **settings)
                continue
            if field.hint == list[str]:
                settings |= {"action": "append"}
            else:
                settings |= {"type": functools.partial(_read, option, field.hint)}
            self.add_argument(option, metavar=key.rpartition("_")[2].upper(), help=text, **settings)

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        known, others = self.parse_known_args(args, namespace)
        if others:
            name = others[0].partition("=")[0]
            hint = foreign_names.hint("setting", name, list(self.options))
            hint = hint or suggestion(name, self.options, f"see {self.prog} --help")
            raise CallboardError(f"{self.prog} has no option {name!r}; {hint}")
        return known

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        found = argparse.Namespace() if namespace is None else namespace
        try:
            return super().parse_known_args(args, found)
        except argparse.ArgumentError as error:
            name = (error.argument_name or "").rpartition("/")[2]
            takes_none = name in self.options and self.options[name].nargs == 0
            raise CallboardError(f"{name} takes no value" if takes_none else f"{name} needs a value") from error
        except _Incomplete as error:
            needed = ((what, getattr(found, one.dest)) for one, what in self._descriptions.items() if one.required)
            what = next(what for what, value in needed if value is None)
            raise CallboardError(f"{self.prog} needs {what}; see {self.prog} --help") from error

    def error(self, message: str) -> NoReturn:
        # All other mistakes have errors of their own.
        raise _Incomplete(message)

    def _chosen(self, name: str, choices: Sequence[str], text: str) -> str:
        if text in choices:
            return text
        near = nearest(text, choices)
        must = f"{name} must be" if name.startswith("-") else f"{self.prog} takes"
        raise CallboardError(f"{must} {_one_of(choices)}, not {text!r}{f'; {did_you_mean(near)}' if near else ''}")


def _one_of(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"


def _read(name: str, hint: Any, text: str) -> Any:
    if not text:  # YAML would read it as null.
        raise CallboardError(f"{name} needs a value: {described(hint)}")
    return converted_text(name, text, hint)


def field_values(known: argparse.Namespace, fields: Mapping[str, Field]) -> dict[str, Any]:
    """Returns the values of the options of `add_fields` that were given, by the names of their fields."""
    return {key: getattr(known, key) for key in fields if hasattr(known, key)}
