"""Which GPUs the process of each node sees."""

import types

from callboard.launch.launchers import gpu_placement
from callboard.launch.node_rules import RULES
from callboard.launch.processes.gpu_driver import Driver, Gpu


def placed(monkeypatch, names, devices=1, gpus=2, visible=None):
    """Returns the GPUs of each node; None where nothing is set."""
    driver = Driver((12, 4), [Gpu("Stub GPU", (8, 0), 1 << 30)] * gpus)
    monkeypatch.setattr(gpu_placement, "find_gpus", lambda: driver)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nodes = [types.SimpleNamespace(name=name, rules=RULES[name.partition("/")[0]]) for name in names]
    gpu_placement.place_on_gpus(nodes, devices)
    return {node.name: node.rules.gpus for node in nodes}


def test_two_learners_share_two_gpus_one_each(monkeypatch):
    names = ["learner/0", "learner/1", "actor/0", "replay/0", "evaluator/0", "coordinator/0"]
    found = placed(monkeypatch, names)
    assert found == {**dict.fromkeys(names), "learner/0": "0", "learner/1": "1"}


def test_learners_have_as_many_as_they_need(monkeypatch):
    assert placed(monkeypatch, ["learner/0", "learner/1"], devices=2, gpus=4) == {
        "learner/0": "0,1",
        "learner/1": "2,3",
    }
    assert placed(monkeypatch, ["learner/0"], devices="all", gpus=3) == {"learner/0": "0,1,2"}
    assert placed(monkeypatch, ["learner/0"], devices="GPU:1,GPU:2", gpus=3) == {"learner/0": "1,2"}
    assert placed(monkeypatch, ["learner/0"], devices=" GPU:1/2") == {"learner/0": "1"}


def test_learners_of_several_policies_share_where_there_are_too_few(monkeypatch):
    names = ["learner/red/0", "learner/blue/0", "learner/green/0"]
    assert list(placed(monkeypatch, names).values()) == ["0", "1", "0"]
    assert list(placed(monkeypatch, names, devices="GPU:1").values()) == ["1", "1", "1"]


def test_inference_nodes_take_what_learners_leave(monkeypatch):
    names = ["learner/0", "inference/0", "inference/1"]
    assert list(placed(monkeypatch, names, gpus=3).values()) == ["0", "1", "2"]
    assert list(placed(monkeypatch, names, gpus=2).values()) == ["0", "1", "1"]
    assert list(placed(monkeypatch, names, gpus=1).values()) == ["0", "0", "0"]
    assert list(placed(monkeypatch, names, devices="CPU:0").values()) == ["", "0", "1"]


def test_gpus_have_the_names_that_the_user_has_given_them(monkeypatch):
    names = ["learner/0", "learner/1"]
    assert list(placed(monkeypatch, names, visible="5, GPU-8a,2").values()) == ["5", "GPU-8a"]
    # CUDA reads no name after one that is none.
    assert list(placed(monkeypatch, names, visible="3,-1,2", gpus=3).values()) == ["3", "3"]


def test_a_machine_without_gpus_changes_nothing(monkeypatch):
    assert placed(monkeypatch, ["learner/0", "inference/0"], devices=4, gpus=0) == {
        "learner/0": None,
        "inference/0": None,
    }
    # The learners are elsewhere.
    assert placed(monkeypatch, ["inference/0"], devices=4, gpus=1) == {"inference/0": "0"}
