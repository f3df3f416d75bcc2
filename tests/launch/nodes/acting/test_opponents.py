"""Snapshots that a learner serves, and how nodes that act fetch, replace and choose them."""

import contextlib
import threading

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.variables.weights import pack_weights
from callboard.launch.experiments.policy_settings import Snapshots
from callboard.launch.nodes.acting.opponents import Opponents, ServedPolicies
from callboard.launch.nodes.node import NodeContext, Unreachable
from callboard.launch.run_directory.layout import RunDirectory
from callboard.runtime.deadlines import wait_until


class Weights(tf.Module):
    """A policy with one variable."""

    def __init__(self, value=0.0):
        super().__init__()
        self.value = tf.Variable([float(value)] * 2)

    @property
    def variables(self):
        return [self.value]


def served(path, notify=print, **snapshots):
    snapshots = snapshots or {"past": Snapshots("main", every=10, keep=2)}
    found = ServedPolicies(RunDirectory(path), snapshots, {}, notify)
    found.load()
    return found


def files(path):
    return sorted(file.name for file in (path / "snapshots").glob("*"))


def test_snapshots_are_taken_when_due_and_the_newest_are_kept(tmp_path):
    policies = served(tmp_path)
    for steps in (0, 9, 10, 15, 25, 26, 40):
        policies.take_due(steps, Weights(steps))
    # Due are 0, 10, 25 and 40.
    assert {
        number: packed.view(np.float32)[0] for number, packed in policies.others_than({}, 1000)["past"].items()
    } == {
        2: 25,
        3: 40,
    }
    assert files(tmp_path) == ["past-2.npz", "past-3.npz"]
    assert list(policies.others_than({"past": [2]}, 1000)["past"]) == [3]


def test_a_restarted_learner_continues_with_its_snapshots(tmp_path):
    before = served(tmp_path)
    for steps in (0, 10, 20):
        before.take_due(steps, Weights(steps))
    after = served(tmp_path)
    after.take_due(0, Weights(99))
    after.take_due(29, Weights(99))
    assert list(after.others_than({}, 1000)["past"]) == [1, 2]
    after.take_due(30, Weights(30))
    assert list(after.others_than({}, 1000)["past"]) == [2, 3]


def test_names_that_begin_alike_are_kept_apart(tmp_path):
    settings = {"past": Snapshots("main", keep=1), "past-1": Snapshots("main", keep=1)}
    served(tmp_path, **settings).take_due(0, Weights(1))
    assert files(tmp_path) == ["past-0.npz", "past-1-0.npz"]
    assert {name: list(numbered) for name, numbered in served(tmp_path, **settings).others_than({}, 1000).items()} == {
        "past": [0],
        "past-1": [0],
    }
    assert list(RunDirectory(tmp_path).snapshots_of("past")) == [0]


def test_a_damaged_snapshot_is_left_out(tmp_path):
    policies = served(tmp_path)
    for steps in (0, 10):
        policies.take_due(steps, Weights(steps))
    (tmp_path / "snapshots" / "past-0.npz").write_text("half")
    said = []
    assert list(served(tmp_path, said.append).others_than({}, 1000)["past"]) == [1]
    (line,) = said
    assert line.startswith("a snapshot is left out: ") and "is damaged" in line


def test_a_full_disk_does_not_end_the_run(tmp_path):
    (tmp_path / "snapshots").write_text("in the way")
    said = []
    policies = served(tmp_path, said.append)
    for steps in (0, 10):
        policies.take_due(steps, Weights(steps))
    assert list(policies.others_than({}, 1000)["past"]) == [0, 1]
    (line,) = said
    assert "could not be written" in line and line.endswith("training continues")


class Learner:
    """A handle of a learner, in this process."""

    def __init__(self, name="past"):
        self.name, self.numbered, self.answers = name, {}, True

    def client(self, timeout):
        return self

    def get_fixed(self, known, most):
        if not self.answers:
            raise Unreachable("it restarts")
        known = known.get(self.name, ())
        return {self.name: {number: packed for number, packed in self.numbered.items() if number not in known}}

    def take(self, number, value):
        self.numbered[number] = pack_weights([np.full(2, value, np.float32)])


def opponents_of(learner, *members):
    variables = {name: Weights(-1.0).variables for name in members}
    context = NodeContext("actor/0", "a", threading.Event(), lambda kind, content: None, None)
    opponents = Opponents([learner], variables, context)
    opponents.values = lambda: {name: float(of[0][0]) for name, of in variables.items()}
    return opponents


def chosen(opponents, policy="past"):
    rng = np.random.default_rng(0)
    return {opponents.choose(policy, rng) for _ in range(50)}


def test_members_get_the_snapshots_in_turn():
    learner = Learner()
    opponents = opponents_of(learner, "past/0", "past/1")
    learner.take(0, 10.0)
    assert opponents.wait()
    assert opponents.numbers == {"past/0": 0} and chosen(opponents) == {"past/0"}
    learner.take(1, 11.0)
    opponents.fetch()
    opponents.apply(lambda name: False)
    assert chosen(opponents) == {"past/0", "past/1"}
    learner.take(2, 12.0)
    opponents.fetch()
    opponents.apply(lambda name: False)
    assert opponents.values() == {"past/0": 12, "past/1": 11}
    assert opponents.player("past/0") == "past@2" and opponents.player("other") == "other"


def test_weights_in_use_are_not_replaced_and_new_episodes_avoid_them():
    learner = Learner()
    learner.take(0, 10.0)
    learner.take(1, 11.0)
    opponents = opponents_of(learner, "past/0", "past/1")
    assert opponents.wait()
    learner.take(2, 12.0)
    opponents.fetch()
    opponents.apply(lambda name: name == "past/0")
    assert opponents.values() == {"past/0": 10, "past/1": 11} and opponents.player("past/0") == "past@0"
    assert chosen(opponents) == {"past/1"}
    opponents.apply(lambda name: False)
    assert opponents.values()["past/0"] == 12


def test_all_members_are_replaced_in_the_end_although_episodes_always_overlap():
    learner = Learner()
    learner.take(0, 10.0)
    learner.take(1, 11.0)
    opponents = opponents_of(learner, "past/0", "past/1")
    assert opponents.wait()
    learner.take(2, 12.0)
    learner.take(3, 13.0)
    opponents.fetch()
    opponents.apply(lambda name: True)
    assert chosen(opponents) == {"past/1"}, "the newer one"
    opponents.apply(lambda name: name == "past/1")
    assert chosen(opponents) == {"past/0"}
    opponents.apply(lambda name: name == "past/0")
    assert opponents.values() == {"past/0": 12, "past/1": 13}


def test_the_only_snapshot_is_replaced_at_once():
    learner = Learner()
    learner.take(0, 10.0)
    opponents = opponents_of(learner, "past/0")
    assert opponents.wait()
    learner.take(1, 11.0)
    opponents.fetch()
    opponents.apply(lambda name: True)
    assert opponents.values() == {"past/0": 11} and opponents.player("past/0") == "past@1"


def test_a_learner_that_does_not_answer_changes_nothing():
    learner = Learner()
    learner.take(0, 10.0)
    opponents = opponents_of(learner, "past/0", "past/1")
    assert opponents.wait()
    learner.answers = False
    opponents.fetch()
    opponents.apply(lambda name: False)
    assert opponents.numbers == {"past/0": 0}


def test_a_saved_policy_has_one_member_of_its_own_name():
    learner = Learner("saved")
    learner.take(0, 7.0)
    opponents = opponents_of(learner, "saved")
    assert opponents.wait() and opponents.values() == {"saved": 7} and opponents.player("saved") == "saved"


@pytest.mark.parametrize("members", [(), ("past/0",)])
def test_waiting_ends_with_the_run(members):
    opponents = opponents_of(Learner(), *members)
    opponents._context.stop.set()
    assert not opponents.wait()


def test_an_error_of_the_thread_that_fetches_ends_the_node(monkeypatch):
    learner = Learner()
    opponents = opponents_of(learner, "past/0")
    learner.take(0, 10.0)
    assert opponents.wait()
    monkeypatch.setattr("callboard.launch.nodes.acting.opponents._FETCH_SECONDS", 0.001)
    learner.numbered = None
    opponents.fetch_in_background()

    def fails():
        with contextlib.suppress(AttributeError):
            return opponents.apply(lambda name: False)
        return True

    assert wait_until(fails, 10, 0.001)
