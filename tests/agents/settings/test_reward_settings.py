"""Settings of rewards: their ranges, and the agents that have them."""

import pytest
from settings_checks import assert_refused

from callboard.agents.agent_names import AGENTS
from callboard.agents.registry import agent_settings
from callboard.agents.settings.shared_settings import RewardSettings
from callboard.errors import CallboardError
from callboard.settings.nested_settings import declared_fields, from_values
from callboard.settings.setting_types import check_ranges, converted


def test_all_agents_have_them_with_a_description():
    # Behavioral cloning learns from actions alone.
    settings = {name: declared_fields(agent_settings(name)) for name in AGENTS if name != "bc"}
    for fields in settings.values():
        for setting in declared_fields(RewardSettings):
            assert fields[setting].text
            if setting != "normalize_rewards":
                assert fields[setting].default == declared_fields(RewardSettings)[setting].default
    # D4PG's support follows the returns, DrQ's rewards are the control suite's, and recorded ones do not change.
    as_they_are = {name for name, fields in settings.items() if not fields["normalize_rewards"].default}
    assert as_they_are == {"cql", "d4pg", "drq", "iql", "td3_bc"}


def test_a_clip_is_a_number_or_a_range():
    hint = declared_fields(RewardSettings)["reward_clip"].hint
    assert [converted("clip", value, hint) for value in (1, [-1, 5], None)] == [1.0, (-1.0, 5.0), None]
    for wrong in (0, -1, [1], [1, 2, 3], "a"):
        with pytest.raises(CallboardError, match="^clip must be a number above 0, a list of 2 numbers, .* or null"):
            converted("clip", wrong, hint)


def test_what_cannot_work_is_refused():
    assert_refused(RewardSettings(), "reward_scale", 0.0, "a number above 0")
    with pytest.raises(CallboardError, match=r"agent: reward_clip must be an increasing range, .* not \[5.0, -1.0\]"):
        check_ranges(RewardSettings(reward_clip=(5.0, -1.0)), "agent.")
    either = "rewards are either normalized or clipped: set normalize_rewards to false"
    with pytest.raises(CallboardError, match=either):
        check_ranges(RewardSettings(normalize_rewards=True, reward_clip=1.0), "agent.")
    without = "normalization_discount has no effect without normalized rewards: set normalize_rewards to true"
    with pytest.raises(CallboardError, match=without):
        check_ranges(RewardSettings(normalization_discount=0.99), "agent.")
    for changed, message in (
        ({"reward_clip": 1.0}, either),
        ({"minibatches": 32, "accumulate": 3}, r"minibatches must be a multiple of accumulate \(3\), not 32"),
    ):
        with pytest.raises(CallboardError, match=message):
            check_ranges(from_values(agent_settings("ppo"), changed), "agent.")
