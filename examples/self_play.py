"""Mappings for games of two players in which a policy learns by playing against snapshots of itself.

The policies are those of `self_play.yaml`: `main` learns, `past` are its snapshots, and `random` plays any legal move.
`main` plays each side in every other episode.
"""

from numpy.random import Generator

from callboard.settings.named_objects import nameable


@nameable
def training_games(agent: str, episode: int, rng: Generator) -> str:
    """Lets `main` play half of its games against one of its snapshots, and half against a random player.

    Its snapshots soon play well, so that it would not learn to answer moves that they never make.
    """
    return (against_random if episode % 4 in (2, 3) else against_past)(agent, episode, rng)


@nameable
def against_past(agent: str, episode: int, rng: Generator) -> str:
    """Lets `main` play against one of its snapshots."""
    return "main" if _is_main(agent, episode) else "past"


@nameable
def against_random(agent: str, episode: int, rng: Generator) -> str:
    """Lets `main` play against a random player."""
    return "main" if _is_main(agent, episode) else "random"


def _is_main(agent: str, episode: int) -> bool:
    return (agent == "player_1") == (episode % 2 == 0)
