"""A machine that the cluster file does not name joins a run and leaves it, each host in a network namespace."""

import shutil

import pytest

pytestmark = pytest.mark.slow
ENDLESS = ["--max-steps", 100_000_000, "--stop-return", "null", "--actors", "1..3"]


def test_a_machine_joins_with_the_token_and_leaves(hosts, tmp_path):
    hosts = hosts("a", "g", share_directory=False)
    addresses = hosts.network.addresses
    nodes = dict(learner=["a"], replay=["a"], actor={"a": 1}, evaluator=[])
    subnet = addresses["a"].rpartition(".")[0] + ".0/24"
    hosts.write_cluster(hosts={"a": addresses["a"]}, guests={"from": subnet, "actors": 2}, **nodes)
    a = hosts.start("a", *ENDLESS)
    token, wrong = a.run_dir / "join-token", tmp_path / "wrong-token"
    a.wait_until(lambda: token.exists() and "learner_steps" in str(a.rows()[-1:]), 300)
    assert oct(token.stat().st_mode & 0o777) == "0o600"
    wrong.write_text("another-token-than-that\n")
    wrong.chmod(0o600)
    refused = hosts.start("g", *ENDLESS, "--join-token", wrong)
    assert refused.wait(300) == 2 and "the first host has another token" in refused.text()
    assert hosts.network.reached("g", "a") == [20_001], "the door alone is open"
    shutil.rmtree(hosts.runs.pop("g").run_dir, ignore_errors=True)
    copied = tmp_path / "token"
    shutil.copy(token, copied)
    g = hosts.start("g", *ENDLESS, "--join-token", copied)
    hosts.wait_until(lambda: "host g: joined the run of a, with actor/1, actor/2" in g.text(), 300)
    hosts.wait_until(lambda: a.rows()[-1].get("actor/present") == 3, 300)
    assert f"host g: joined the run, from {addresses['g']}" in a.text()
    hosts.power_cut("g")
    hosts.wait_until(lambda: a.rows()[-1].get("actor/present") == 1, 120)
    steps = a.rows()[-1]["environment_steps"]
    hosts.wait_until(lambda: a.rows()[-1]["environment_steps"] > steps + 100, 120)
    g = hosts.start("g", *ENDLESS, "--join-token", copied)
    hosts.wait_until(lambda: a.rows()[-1].get("actor/present") == 3, 300)
    a.interrupt()
    assert a.wait(120) == 130, a.text()
    assert g.wait(120) == 130, g.text()
    assert hosts.leftovers() == []
