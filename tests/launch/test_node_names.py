"""Names of nodes and metrics, with and without a policy."""

import pytest

from callboard.launch.node_names import kind_of, metric_of, number_of, policy_of


@pytest.mark.parametrize(
    ("name", "kind", "policy", "number"),
    [
        ("learner/0", "learner", "", 0),
        ("actor/12", "actor", "", 12),
        ("learner/red/3", "learner", "red", 3),
        ("replay/7/2", "replay", "7", 2),
        ("inference/a-b_c/1", "inference", "a-b_c", 1),
        ("launcher", "launcher", "", 0),
    ],
)
def test_parts_of_names(name, kind, policy, number):
    assert (kind_of(name), policy_of(name), number_of(name)) == (kind, policy, number)


def test_metrics_of_the_only_policy_have_no_prefix():
    assert metric_of("red", "learner/loss") == "red/learner/loss"
    assert metric_of("", "learner/loss") == "learner/loss"
