"""The games of the self-play example: who plays which side."""

import collections

import numpy as np

from callboard.examples import self_play


def test_half_of_the_training_games_are_against_a_random_player():
    rng = np.random.default_rng(0)
    games = collections.Counter(
        tuple(self_play.training_games(agent, episode, rng) for agent in ("player_0", "player_1"))
        for episode in range(100)
    )
    assert games == {("main", "past"): 25, ("past", "main"): 25, ("main", "random"): 25, ("random", "main"): 25}
