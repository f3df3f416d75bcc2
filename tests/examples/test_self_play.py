"""The games of the self-play example: who plays which side."""

import collections

import numpy as np

from callboard.examples import self_play


def test_one_training_game_in_five_is_against_a_random_player():
    rng = np.random.default_rng(0)
    games = collections.Counter(
        tuple(self_play.training_games(agent, episode, rng) for agent in ("player_0", "player_1"))
        for episode in range(100)
    )
    assert games == {("main", "past"): 40, ("past", "main"): 40, ("main", "random"): 10, ("random", "main"): 10}
