"""The watch over the memory of nodes, with a clock of the tests."""

import math
import random

import pytest

from callboard.launch.nodes.coordination.memory_watch import MemoryWatch, memory_metrics
from callboard.launch.nodes.reports.messages import NodeHealth

MIB, GIB = 2**20, 2**30


def node(memory, process=1, host="a", **fields):
    return NodeHealth(host, process, 0.5, int(memory), "acting", {}, **fields)


class Watched:
    """A watch that is fed every two seconds."""

    def __init__(self):
        self.now = 0.0
        self.watch = MemoryWatch(lambda: self.now)
        self.lines = []

    def over(self, minutes, nodes, values=lambda seconds: {}):
        begun = self.now
        for step in range(int(minutes * 30)):
            self.now = begun + 2.0 * step
            seconds = 2.0 * step
            self.lines += self.watch.new(nodes(seconds), values(seconds))
        return self.lines


@pytest.fixture
def watched():
    return Watched()


def actor(memory, **fields):
    return lambda seconds: {"actor/0": node(300 * MIB + memory(seconds) * MIB, **fields)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("minutes", "memory"),
    [
        pytest.param(10, lambda s: s / 2, id="a leak"),
        pytest.param(10, lambda s: s / 2 + random.Random(s).uniform(0, 200), id="under what comes and goes"),
        pytest.param(800, lambda s: s / 120, id="half a MiB a minute"),
        pytest.param(60, lambda s: 0 if s < 1800 else (s - 1800) / 2, id="a leak after half an hour"),
        pytest.param(70, lambda s: 60 * (s // 60), id="in steps of a minute"),
    ],
)
def test_steady_growth_is_named_once(watched, minutes, memory):
    lines = watched.over(minutes, actor(memory))
    assert len(lines) == 1
    assert lines[0].startswith("actor/0 grows steadily, by ") and "what grows: its environments" in lines[0]


@pytest.mark.parametrize(
    "memory",
    [
        pytest.param(lambda s: 0, id="none"),
        pytest.param(lambda s: 500 * (1 - math.exp(-s / 60)), id="a buffer that fills"),
        pytest.param(lambda s: 0 if s < 200 else 800, id="once"),
        pytest.param(lambda s: s % 120, id="freed again"),
        pytest.param(lambda s: random.Random(s).uniform(0, 300), id="noise"),
        pytest.param(lambda s: s / 100, id="little"),
        pytest.param(lambda s: -s / 10, id="shrinking"),
    ],
)
def test_other_growth_is_not(watched, memory):
    assert watched.over(30, actor(memory)) == []


def test_growth_of_processes_of_environments_is_theirs(watched):
    def nodes(seconds):
        return {"actor/0": node((300 + seconds) * MIB, memory_of_workers=int((200 + seconds) * MIB))}

    assert "its environments, in processes of their own" in watched.over(10, nodes)[0]


def test_a_restarted_node_begins_anew_and_is_named_once(watched):
    for process in range(3):
        watched.over(5, actor(lambda s: s, process=process))
    assert watched.lines == []
    for process in range(3, 6):
        watched.over(10, actor(lambda s: s, process=process))
    assert len(watched.lines) == 1


def test_a_node_that_compiles_is_starting(watched):
    assert watched.over(20, actor(lambda s: s, starting=True)) == []


def replay(seconds):
    return {"replay/red/0": node((300 + seconds) * MIB)}


def shard(fill, inserted):
    return {"red/replay/fill_0": fill, "red/replay/items_0": 1000.0, "red/replay/inserted_0": inserted}


def test_replay_grows_until_its_table_is_full_and_all_of_it_is_new(watched):
    assert watched.over(60, replay, lambda s: shard(s / 3600, s)) == []
    assert watched.over(20, replay, lambda s: shard(1.0, 1000 + s / 2)) == []
    (line,) = watched.over(10, replay, lambda s: shard(1.0, 2000 + s))
    assert "replay/red/0 grows steadily" in line and "although its table is full" in line


def test_a_queue_of_constant_length_may_not_grow(watched):
    (line,) = watched.over(20, replay, lambda s: shard(random.Random(s).uniform(0.1, 0.3), 100 * s))
    assert "what grows: replay" in line


def test_nodes_of_one_process_are_named_together(watched):
    def nodes(seconds):
        return {name: node((300 + seconds) * MIB) for name in ("actor/0", "coordinator/0", "learner/0", "replay/0")}

    (line,) = watched.over(10, nodes)
    assert line.startswith("the process of all nodes on a grows steadily") and "--launcher processes" in line


def use(used, limit=4 * GIB, name="memory.max of the control group /job"):
    return (name, int(used), int(limit))


def test_a_limit_that_is_near_is_said_once_for_each_machine_with_what_has_grown(watched):
    def nodes(seconds):
        used = 2 * GIB + seconds * 20 * MIB
        return {
            "actor/0": node(300 * MIB + seconds * 20 * MIB, 1, memory_use=use(used)),
            "actor/1": node(300 * MIB, 2, memory_use=use(used)),
            "learner/0": node(1.5 * GIB, 3, memory_use=use(used)),
            "replay/0": node(GIB, 4, memory_use=use(used)),
            "actor/2": node(9 * GIB, 1, "b", memory_use=use(GIB)),
        }

    (line,) = watched.over(3, nodes, lambda s: {"replay/fill_0": 0.4})
    assert "3.6 GiB of 4.0 GiB are in use" in line and "memory.max of the control group /job" in line
    assert "actor/0 has 1.9 GiB (1.6 GiB more than 82 s ago)" in line
    assert "replay/0 has 1.0 GiB (40% full)" in line
    assert line.endswith("lower actors or envs_per_actor")


@pytest.mark.parametrize(
    ("largest", "advice"),
    [
        ("replay/0", "lower the size of replay, such as agent.replay.size"),
        ("learner/0", "lower agent.batch_size, or use a smaller network"),
        ("evaluator/0", "evaluator false"),
        ("feeder/0", "lower actors or envs_per_actor"),
    ],
)
def test_what_to_lower_is_that_of_the_largest(watched, largest, advice):
    nodes = {
        "actor/0": node(GIB, 1, memory_use=use(3.9 * GIB)),
        largest: node(2 * GIB, 2, memory_use=use(3.9 * GIB)),
    }
    (line,) = watched.over(1, lambda seconds: nodes)
    assert line.endswith(advice)


def test_nodes_of_one_process_come_near_a_limit_together(watched):
    nodes = {name: node(GIB, memory_use=use(3.9 * GIB)) for name in ("actor/0", "replay/0")}
    (line,) = watched.over(1, lambda seconds: nodes)
    assert "the process of all nodes has 1.0 GiB: lower actors or envs_per_actor, or the size of replay" in line


def test_metrics_have_every_node_or_the_largest_of_many():
    few = {"actor/0": node(1), "actor/1": node(2), "learner/red/0": node(3)}
    assert memory_metrics(few) == {"actor/memory_0": 1, "actor/memory_1": 2, "red/learner/memory_0": 3}
    assert memory_metrics({f"actor/{index}": node(index) for index in range(65)}) == {"actor/memory_max": 64}
