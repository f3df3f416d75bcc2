"""A parser for the options of the commands themselves: argparse, with one-line error messages."""

import argparse
import re
from collections.abc import Iterable
from typing import NoReturn

from ... import foreign_names
from ...errors import CallboardError, did_you_mean, nearest, suggestion

_KINDS = {"int": "a whole number", "float": "a number"}


class CommandParser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `CallboardError` for wrong usage and accepts no abbreviated options."""

    def __init__(self, prog: str, **settings: object):
        super().__init__(prog, allow_abbrev=False, **settings)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise CallboardError(self._plain(message))

    def _plain(self, message: str) -> str:
        found = re.fullmatch(r"unrecognized arguments: (.*)", message, re.DOTALL)
        if found:
            unknown = found[1].split()[0].partition("=")[0]
            options = list(self._option_string_actions)
            foreign = foreign_names.hint("setting", unknown, options)
            hint = foreign or suggestion(unknown, options, f"see {self.prog} --help")
            return f"{self.prog} has no option {unknown!r}; {hint}"
        found = re.fullmatch(r"the following arguments are required: (.*)", message, re.DOTALL)
        if found:
            return f"{self.prog} needs {self._described(found[1].split(', ')[0])}; see {self.prog} --help"
        found = re.fullmatch(r"argument (\S+): (.*)", message, re.DOTALL)
        if not found:
            return " ".join(message.split())
        name, problem = found[1].rpartition("/")[2], found[2]
        wrong = re.fullmatch(r"invalid (\w+) value: (.*)", problem, re.DOTALL)
        if wrong:
            return f"{name} must be {_KINDS.get(wrong[1], 'a ' + wrong[1])}, not {wrong[2]}"
        wrong = re.fullmatch(r"invalid choice: (.*) \(choose from (.*)\)", problem, re.DOTALL)
        if wrong:
            choices = wrong[2].replace("'", "").split(", ")
            near = nearest(wrong[1].strip("'"), choices)
            must = f"{name} must be" if name.startswith("-") else f"{self.prog} takes"
            hint = "" if near is None else f"; {did_you_mean(near)}"
            return f"{must} {_one_of(choices)}, not {wrong[1]}{hint}"
        if problem.startswith("expected"):
            return f"{name} needs a value"
        if problem.startswith("ignored explicit argument"):
            return f"{name} takes no value"
        return f"{name}: {' '.join(problem.split())}"

    def _described(self, argument: str) -> str:
        """Returns what an argument of the command is: its choices or its description, or the name of an option."""
        for action in self._positionals._group_actions:
            if argument in (action.dest, action.metavar):
                return _one_of(action.choices) if action.choices else action.help or argument
        return argument


def _one_of(choices: Iterable[str]) -> str:
    choices = list(choices)
    return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
