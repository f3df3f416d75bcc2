"""Games by name: messages about mistakes, with useful suggestions only."""

import subprocess
import sys

import pytest
from refused_names import assert_refused


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("ALE/Brekout-v5", {}, "unknown environment 'ALE/Brekout-v5'; did you mean 'ALE/Breakout-v5'?"),
        ("ale/pong-v5", {}, "unknown environment 'ale/pong-v5'; did you mean 'ALE/Pong-v5'?"),
        ("ALE/Qbert", {}, "unknown environment 'ALE/Qbert'; did you mean 'ALE/Qbert-v5'?"),
        ("ALE/", {}, "unknown environment 'ALE/'; give an id of ale-py, such as 'ALE/Breakout-v5'"),
        (
            "ALE/Pong-v5",
            {"frame_skip": 4},
            "environment 'ALE/Pong-v5' has no option 'frame_skip'; did you mean 'frameskip'?",
        ),
        (
            "ALE/Pong-v5",
            {"gravity": 4},
            "environment 'ALE/Pong-v5' has no option 'gravity'; "
            "its options are frameskip, full_action_space, life_loss, "
            "max_num_frames_per_episode, noop_max, num_threads, render_mode, repeat_action_probability, screen_size",
        ),
        (
            "ALE/Pong-v5",
            {"repeat_action_probability": 25},
            "environment 'ALE/Pong-v5': repeat_action_probability must be a number from 0 to 1, not 25",
        ),
        (
            "ALE/Pong-v5",
            {"noop_max": 2.5},
            "environment 'ALE/Pong-v5': noop_max must be a whole number from 0 to 100,000, not 2.5",
        ),
        ("ALE/Pong-v5", {"life_loss": 1}, "environment 'ALE/Pong-v5': life_loss must be true or false, not 1"),
        (
            "ALE/Pong-v5",
            {"render_mode": "human"},
            "environment 'ALE/Pong-v5': render_mode must be rgb_array or null, not 'human'",
        ),
        ("MinAtar/Breakot-v1", {}, "unknown environment 'MinAtar/Breakot-v1'; did you mean 'MinAtar/Breakout-v1'?"),
        ("MinAtar/Breakout-v2", {}, "unknown environment 'MinAtar/Breakout-v2'; did you mean 'MinAtar/Breakout-v1'?"),
        (
            "MinAtar/Breakout-v1",
            {"sticky_action_probability": 0.1},
            "environment 'MinAtar/Breakout-v1' has no option 'sticky_action_probability'; "
            "did you mean 'sticky_action_prob'?",
        ),
        (
            "MinAtar/Breakout-v1",
            {"max_episode_steps": 0},
            "environment 'MinAtar/Breakout-v1': max_episode_steps must be a whole number of at least 1 or null, not 0",
        ),
        ("procgen:coinrn", {}, "unknown environment 'procgen:coinrn'; did you mean 'procgen:coinrun'?"),
        (
            "procgen:procgen-coinrun-v1",
            {},
            "unknown environment 'procgen:procgen-coinrun-v1'; did you mean 'procgen:coinrun'?",
        ),
        (
            "PongNoFrameskip-v4",
            {},
            "environment 'PongNoFrameskip-v4' is an old name: take 'ALE/Pong-v5' with env_options "
            "{repeat_action_probability: 0} for its frames with the usual preprocessing, or "
            "'gymnasium:PongNoFrameskip-v4' for raw frames",
        ),
        (
            "BreakoutNoFrameskip-v0",
            {},
            "environment 'BreakoutNoFrameskip-v0' is an old name: take 'ALE/Breakout-v5' for its frames with the usual "
            "preprocessing, or 'gymnasium:BreakoutNoFrameskip-v0' for raw frames",
        ),
        (
            "PongDeterministic-v4",
            {},
            "environment 'PongDeterministic-v4' is an old name: take 'ALE/Pong-v5' with env_options "
            "{repeat_action_probability: 0, noop_max: 0} for the same with the usual preprocessing",
        ),
        (
            "Pong-v0",
            {},
            "environment 'Pong-v0' is an old name: take 'ALE/Pong-v5' with env_options {noop_max: 0} for the same with "
            "the usual preprocessing, and a frame skip that is not random, or 'gymnasium:Pong-v0' for raw frames",
        ),
        (
            "procgen:qqqq",
            {},
            "unknown environment 'procgen:qqqq'; the games are bigfish, bossfight, caveflyer, chaser, climber, "
            "coinrun, dodgeball, fruitbot, heist, jumper, leaper, maze, miner, ninja, plunder, starpilot",
        ),
        (
            "procgen:coinrun",
            {"num_level": 200},
            "environment 'procgen:coinrun' has no option 'num_level'; did you mean 'num_levels'?",
        ),
        (
            "procgen:coinrun",
            {"distribution_mode": "memory"},
            "environment 'procgen:coinrun' has no 'distribution_mode' 'memory': it has easy, hard, exploration",
        ),
        (
            "procgen:coinrun",
            {"distribution_mode": "simple"},
            "environment 'procgen:coinrun': distribution_mode must be easy, hard, extreme, memory or exploration, "
            "not 'simple'",
        ),
        (
            "procgen:coinrun",
            {"distribution_mode": "exploration", "num_levels": 5},
            "environment 'procgen:coinrun': 'exploration' is a level of its own; "
            "leave 'num_levels' and 'start_level' out",
        ),
        (
            "procgen:coinrun",
            {"num_levels": -1},
            "environment 'procgen:coinrun': num_levels must be a whole number from 0 to 2,147,483,647, not -1",
        ),
    ],
)
def test_mistakes_are_refused_in_one_line(name, options, message):
    assert_refused(name, options, message)


@pytest.mark.slow
def test_games_print_nothing_on_the_screen_and_import_nothing_heavy():
    code = (
        "import sys\n"
        "from callboard import environments\n"
        "for name in ('procgen:coinrun', 'ALE/Pong-v5', 'MinAtar/Breakout-v1'):\n"
        "    environment = environments.make(name, 1, [0])\n"
        "    environment.reset()\n"
        "    environment.close()\n"
        "assert not {'gym', 'matplotlib', 'pandas', 'tensorflow', 'procgen.gym_registration'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow("daily")
def test_libraries_are_imported_where_they_are_needed():
    code = (
        "import sys, callboard.environments\n"
        "assert not {'ale_py', 'minatar', 'procgen', 'gym3', 'gym'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
