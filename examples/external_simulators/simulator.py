"""A simulator in Python that a policy server acts for; it needs `policy_client.py` alone, and Python 3.9.

    python examples/external_simulators/simulator.py http://127.0.0.1:8650 TOKEN [EPISODES]

A walker sees its place and a goal, both from -1 to 1, and steps left (0) or right (1) by 0.1.
"""

import pathlib
import random
import sys

# A simulator of your own has a copy of the file beside it.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from policy_client import EpisodeLost, PolicyClient  # noqa: E402


def play(client: PolicyClient) -> float:
    """Plays an episode; returns its return."""
    place, goal = (random.randint(-10, 10) / 10 for _ in range(2))
    episode = client.begin([place, goal])
    total, steps = 0.0, 0
    while True:
        place = max(-1.0, min(1.0, place + (0.1 if episode.action == 1 else -0.1)))
        steps += 1
        reached = abs(place - goal) < 0.05
        reward = 1.0 if reached else -0.02
        total += reward
        if reached or steps == 40:
            episode.end(reward, [place, goal], terminated=reached)
            return total
        episode.step(reward, [place, goal])


def main(url: str, token: str, episodes: int = 100) -> None:
    client = PolicyClient(url, token)
    returns: list[float] = []
    while len(returns) < episodes:
        try:
            returns.append(play(client))
        except EpisodeLost:
            continue
    last = returns[-100:]
    print(f"{len(returns)} episodes, mean return of the last {len(last)}: {sum(last) / len(last):.2f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
