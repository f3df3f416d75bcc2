"""Import of objects that settings name as `package.module:name`."""

import pickle
import sys

import cloudpickle
import gymnasium
import pytest

from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.settings import named_objects
from callboard.settings.named_objects import import_object


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    (tmp_path / "own_objects.py").write_text("import json\nfrom os import system\n\ndef factory():\n    pass\n")
    (tmp_path / "incomplete_objects.py").write_text("import no_such_package\n")
    (tmp_path / "failing_objects.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_an_object_is_imported():
    assert import_object("torso", "own_objects:factory").__name__ == "factory"


@pytest.mark.parametrize(
    "path, message",
    [
        ("own_objects:factor", "module 'own_objects' has no 'factor', did you mean 'factory'?"),
        ("own_objects:x", "module 'own_objects' has no 'x', define it in own_objects, or name another object"),
        ("own_objects:jsonn", "module 'own_objects' has no 'jsonn', define it in own_objects, or name another object"),
        ("own_objects:systm", "module 'own_objects' has no 'systm', define it in own_objects, or name another object"),
        ("own_objects:system", "is refused: it belongs to Python's standard library"),
        ("own_objects.py:factory", "names a file: write its module, own_objects:factory"),
        ("/a/own_objects.py:factory", "names a file: write its module, own_objects:factory, and start in /a"),
        ("os:system", "'os' is part of Python's standard library"),
        ("no_such_package:x", "cannot be imported: No module named 'no_such_package'"),
        ("incomplete_objects:x", "cannot be imported: No module named 'no_such_package'"),
        (":x", "cannot be imported: '' is not the name of a module"),
        (".a:x", "cannot be imported: '.a' is not the name of a module"),
    ],
)
def test_a_mistake_is_one_line(path, message):
    with pytest.raises(CallboardError) as caught:
        import_object("torso", path)
    assert message in str(caught.value) and repr(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_of_the_module_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        import_object("torso", "failing_objects:x")


class ToyOfProgram(gymnasium.Env):
    """Stands for an environment that a script defines."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, True, False, {}


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
@pytest.mark.parametrize("as_lambda", [False, True])
def test_what_a_program_defines_reaches_its_other_processes(monkeypatch, pickler, as_lambda):
    kind = type("Toy", (ToyOfProgram,), {"__module__": "__main__", "__qualname__": "Toy"})
    with monkeypatch.context() as program:
        program.setattr(sys.modules["__main__"], "Toy", kind, raising=False)
        experiment = Experiment("ppo", env=(lambda: kind()) if as_lambda else kind)
        assert as_lambda or experiment.env == "__main__:Toy"
        pickled = pickler.dumps(experiment)
    # Another process has another program, in which this name means nothing.
    monkeypatch.setattr(named_objects, "_received", {})
    assert not hasattr(sys.modules["__main__"], "Toy")
    monkeypatch.setattr(named_objects, "_PROGRAM", "another")
    received = pickler.loads(pickled)
    assert received.layout().spec.action.num_values == 2
    # A node may send it on, as the parts on Ray do.
    assert pickler.loads(pickler.dumps(received)).layout().spec.action.num_values == 2
