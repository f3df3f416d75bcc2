"""Counters add up the totals that incarnations of nodes report."""

import types

import pytest

from callboard.launch.nodes.coordination.counters import CounterFile, Counters
from callboard.launch.run_directory.layout import RunDirectory


def test_a_running_node_reports_its_totals_again_to_a_restarted_coordinator():
    counters = Counters({"actor/0#a": {"environment_steps": 80}, "actor/1#b": {"environment_steps": 50}})
    counters.update("actor/0#a", {"environment_steps": 120})
    assert counters.total("environment_steps") == 170


def test_the_size_of_counters_does_not_grow_with_restarts():
    counters = Counters()
    for incarnation in range(1000):
        counters.update(f"actor/0#{incarnation}", {"environment_steps": 1, "episodes": 2})
    assert counters.totals == {"environment_steps": 1000, "episodes": 2000}
    assert len(counters.sources) == 3
    assert Counters(counters.sources).totals == counters.totals


def test_a_late_report_does_not_decrease_a_counter():
    counters = Counters()
    counters.update("actor/0#a", {"environment_steps": 120})
    counters.update("actor/0#a", {"environment_steps": 80})
    assert counters.total("environment_steps") == 120


@pytest.mark.parametrize(
    "content",
    [
        '{"past": {"environment_steps": "x"}}',
        '{"past": 5}',
        '{"past": {"environment_steps": 1e999}}',
        f'{{"past": {{"environment_steps": {"9" * 400}}}}}',
        f'{{"past": {{"environment_steps": {2**63}}}}}',
        '{"past": {"environment_steps": -4}}',
        '{"past": {"environment_steps": 1.5}}',
        '{"past": {"environment_steps": true}}',
        '{"past": {"environment_steps": NaN}}',
        "[" * 100_000,
        "[]",
        "{",
    ],
)
def test_a_file_without_counts_is_ignored(content, tmp_path):
    run = types.SimpleNamespace(directory=RunDirectory(tmp_path), policy_runs=[])
    run.directory.counters.write_text('{"past": {"environment_steps": 7}}')
    assert CounterFile(run).load().total("environment_steps") == 7
    run.directory.counters.write_text(content)
    assert CounterFile(run).load().totals.get("environment_steps", 0) == 0
