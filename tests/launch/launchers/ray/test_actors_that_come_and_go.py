"""Actors on machines that join a Ray cluster during a run, and leave it again."""

import pytest
from ray_clusters import autoscaling_cluster, machines_alive, ray_cluster

from callboard.runtime.deadlines import wait_until

pytestmark = pytest.mark.slow


def test_a_machine_that_joins_gets_actors_and_one_that_leaves_costs_no_other(train):
    with ray_cluster(machines=1, processors=3) as cluster:  # Room for the learner, replay and one actor.
        options = [
            "--actors",
            "2..5",
            "--no-evaluator",
            "--stop-return",
            "null",
            "--max-steps",
            10_000_000,
            "--ray-address",
            cluster.address,
        ]
        run = train("--launcher", "ray", *options, recipe="impala-cartpole")
        run.wait_until(lambda: "waits for actors: 1 of at least 2 are there" in run.text(), timeout=400)
        added = cluster.add_node(num_cpus=2)
        run.wait_until(lambda: "continues, with" in run.text(), timeout=400)
        run.wait_until(lambda: run.rows() and run.rows()[-1].get("actor/present") == 3, timeout=200)
        run.wait_until(lambda: run.rows()[-1]["learner_steps"] > 5, timeout=300)
        cluster.remove_node(added, allow_graceful=False)
        run.wait_until(lambda: run.text().count("its machine has gone; it starts again") == 2, timeout=200)
        run.wait_until(lambda: run.text().count("waits for actors: 1 of at least 2") == 2, timeout=200)
        steps = run.rows()[-1]["environment_steps"]
        cluster.add_node(num_cpus=2)
        run.wait_until(lambda: run.rows()[-1]["environment_steps"] > steps + 500, timeout=400)
        run.interrupt()
        assert run.wait(timeout=120) == 130, run.text()
        assert "actor/0: " not in run.text().replace("actor/0: makes progress", ""), "the others have no fault"


def test_an_autoscaler_adds_machines_for_actors_and_takes_them_back(train):
    with autoscaling_cluster(machines=2, processors=3) as address:  # The head has room for one actor.
        options = ["--actors", "1..5", "--no-evaluator", "--stop-return", "null", "--max-steps", 10_000_000]
        run = train("--launcher", "ray", *options, "--ray-address", address, recipe="impala-cartpole")
        run.wait_until(lambda: run.rows() and run.rows()[-1].get("actor/present") == 5, timeout=300)
        assert machines_alive(address) == 3
        run.interrupt()
        assert run.wait(timeout=120) == 130, run.text()
        assert wait_until(lambda: machines_alive(address) == 1, 120, 1.0), "idle machines stay"
