"""The path of a record, as the page on the architecture lists it, in runs that are followed call by call."""

import dataclasses
import difflib
import pathlib
import re
import sys

import pytest
from slow_cases import slow_but

import callboard
from callboard import Experiment, run
from callboard.agents.apex import Apex
from callboard.agents.impala import Impala
from callboard.launch.nodes.acting.actor import ActorNode
from callboard.launch.nodes.learning.learner import LearnerNode

ROOT = pathlib.Path(callboard.__file__).parent
PAGE = ROOT / "docs" / "architecture.md"
STEADY = 4
"""Learner steps before the record that is followed: nothing is set up or compiled any more."""
HEADINGS = (
    "### {}: from an action to the next",
    "### {}: until the actor acts with newer weights",
    "### {}: compiled in the first learner step",
)
AGENTS = {"IMPALA": Impala(), "Ape-X": Apex(replay=dataclasses.replace(Apex().replay, min_size=64, size=1000))}
MOST_MODULES = {"IMPALA": 22, "Ape-X": 30}
"""Modules that a record enters from an action to the next.  The numbers may only shrink."""


class Calls:
    """Modules of the library in the order in which calls first enter them, by call of a node's method."""

    def __init__(self, monkeypatch):
        self.calls = []
        """The node, whether it did what it was called for, and the modules."""
        self.learner_steps = 0
        self._wrap(monkeypatch, ActorNode, "step")
        self._wrap(monkeypatch, LearnerNode, "learn")

    def _wrap(self, monkeypatch, role, method):
        original = getattr(role, method)

        def followed(node):
            if 0 < self.learner_steps < STEADY or self.learner_steps > STEADY + 1:
                modules, done = [], original(node)
            else:
                modules, done = modules_entered(original, node)
            self.calls.append((role, done, modules))
            self.learner_steps += role is LearnerNode and done
            return done

        monkeypatch.setattr(role, method, followed)

    def path(self):
        """Returns the modules of the three tables of the page."""
        steps = [index for index, (role, done, _) in enumerate(self.calls) if role is LearnerNode and done]
        learns = steps[STEADY]
        acts, next_acts = (
            next(index for index in indices if self.calls[index][0] is ActorNode)
            for indices in (range(learns, -1, -1), range(learns, len(self.calls)))
        )
        to_the_next = self.calls[acts][2]
        life = dict.fromkeys(module for _, _, modules in self.calls[acts : next_acts + 1] for module in modules)
        compiled = [module for module in self.calls[steps[0]][2] if module not in life]
        return to_the_next, [module for module in life if module not in to_the_next], compiled


def modules_entered(function, *arguments):
    """Returns the modules of the library that a call enters in this thread, in order, and what it returns."""
    modules, known = {}, set()

    def enter(frame, event, argument):
        code = frame.f_code
        if event == "call" and code not in known:
            known.add(code)
            path = pathlib.Path(code.co_filename)
            if path.is_relative_to(ROOT) and path.suffix == ".py" and ".venv" not in path.parts:
                modules[path.relative_to(ROOT).as_posix()] = None

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        result = function(*arguments)
    finally:
        sys.setprofile(before)
    return list(modules), result


def listed(heading):
    """Returns the modules of the table below a heading of the page, with the numbers of their lines."""
    lines = PAGE.read_text().splitlines()
    rows = []
    for number, line in enumerate(lines[lines.index(heading) + 1 :], lines.index(heading) + 2):
        if line.startswith("#"):
            break
        if row := re.match(r"\| `([\w/]+\.py)` \|", line):
            rows.append((number, row[1]))
    return rows


def corrections(heading, entered):
    """Returns what to change in a table of the page so that it lists the modules that were entered."""
    rows = listed(heading)
    before = [module for _, module in rows]
    changes = []
    for kind, begin, end, entered_begin, entered_end in difflib.SequenceMatcher(None, before, entered).get_opcodes():
        if kind != "equal":
            changes += [f"delete line {number}, `{module}`" for number, module in rows[begin:end]]
            after = f"after line {rows[end - 1][0]}" if end else f"first below {heading!r}"
            changes += [f"insert a row for `{module}` {after}" for module in entered[entered_begin:entered_end]]
    return changes


@pytest.mark.parametrize("agent", slow_but(AGENTS, "IMPALA"))
def test_a_record_takes_the_path_of_the_page(agent, tmp_path, monkeypatch):
    calls = Calls(monkeypatch)
    # As many learner steps as are looked at.
    settings = {
        "max_steps": 2000,
        "max_learner_steps": STEADY + 3,
        "evaluator": False,
        "checkpoint_every": 10_000,
        "run_dir": str(tmp_path / "run"),
    }
    outcome = run(Experiment(AGENTS[agent], env="CartPole-v1", **settings), "inline")
    assert outcome.exit_code == 0, outcome.error
    path = calls.path()
    changes = []
    for heading, modules in zip(HEADINGS, path, strict=True):
        changes += corrections(heading.format(agent), modules)
    assert not changes, f"{PAGE.relative_to(ROOT)}: " + "; ".join(changes)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_record_enters_few_modules(agent):
    assert len(listed(HEADINGS[0].format(agent))) <= MOST_MODULES[agent], "join modules that are one concept"
