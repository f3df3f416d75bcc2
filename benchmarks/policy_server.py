"""Actions per second of a policy server, and how long a client waits for one.

    python -m callboard.benchmarks.policy_server http://127.0.0.1:8650 TOKEN --clients 1 8 32

The server is that of a run (`callboard train --policy-server`) or `callboard serve`.  Clients are `PolicyClient`s that
request the next action at once, with random observations, in episodes of 100 timesteps; they are threads of up to four
processes.  The time that a client takes to make a request and to read its answer counts.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tree

from ..environments.batches.encoding import Leaf, encoding_of
from ..environments.batches.spec_files import parse_spec
from ..errors import one_line
from ..policy_client import Episode, PolicyClient, ServerError
from ..runtime.interpreter import spawning_on_this_path

_EPISODE_STEPS = 100
_MOST_PROCESSES = 4
_WARM_UP_SECONDS = 3.0
_ANSWER_SECONDS = 10.0
"""Time within which a server must answer before it is measured."""


class Load(NamedTuple):
    """What a number of clients have measured together."""

    clients: int
    actions_per_second: float
    median: float
    """Seconds from a request to its answer."""
    percentile_99: float


def measure(url: str, token: str, clients: int, seconds: float) -> Load:
    """Measures a server.

    Args:
      url: its address.
      token: its token.
      clients: number of clients.
      seconds: how long they request actions, after a warm-up of three seconds.
    """
    processes = min(_MOST_PROCESSES, clients)
    shares = [clients // processes + (index < clients % processes) for index in range(processes)]
    context = multiprocessing.get_context("spawn")
    with spawning_on_this_path(), concurrent.futures.ProcessPoolExecutor(processes, context) as pool:
        waiting = [pool.submit(_clients, url, token, share, _WARM_UP_SECONDS, seconds) for share in shares]
        durations = np.concatenate([future.result() for future in waiting])
    return Load(clients, len(durations) / seconds, *np.percentile(durations, [50, 99]))


def _clients(url: str, token: str, count: int, warm_up: float, seconds: float) -> np.ndarray:
    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        waiting = [threads.submit(_client, url, token, index, warm_up, seconds) for index in range(count)]
        return np.concatenate([future.result() for future in waiting])


def _client(url: str, token: str, seed: int, warm_up: float, seconds: float) -> np.ndarray:
    """Returns the seconds that each action took."""
    client = PolicyClient(url, token)
    observations = _observations(client, seed)
    begin = time.monotonic() + warm_up
    durations: list[float] = []
    episode: Episode | None = None
    steps = 0
    while (now := time.monotonic()) < begin + seconds:
        observation = observations[steps % len(observations)]
        if episode is None:
            episode = client.begin(observation)
        elif steps % _EPISODE_STEPS:
            episode.step(0.0, observation)
        else:
            episode.end(0.0, observation, terminated=False)
            episode = None
        steps += 1
        if now >= begin:
            durations.append(time.monotonic() - now)
    if episode is not None:
        episode.cut_off()
    return np.array(durations)


def _observations(client: PolicyClient, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    encoding = encoding_of(parse_spec(json.dumps(client.spaces()))).observation

    def sample(leaf: Leaf) -> np.ndarray:
        low, high = (np.clip(getattr(leaf.spec, name, end), -1, 255) for name, end in (("minimum", -1), ("maximum", 1)))
        array = rng.uniform(low, high, leaf.spec.shape).astype(leaf.dtype)
        array = np.moveaxis(array, -1, 0) if leaf.channels_first else array
        return array if leaf.start is None else array + np.asarray(leaf.start, leaf.dtype)

    return [tree.map_structure(sample, encoding) for _ in range(16)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("token")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=10.0)
    known = parser.parse_args(arguments)
    try:
        PolicyClient(known.url, known.token, patience=_ANSWER_SECONDS).spaces()
    except (OSError, ServerError) as error:
        parser.exit(2, f"callboard: no policy server can be measured at {known.url}: {one_line(error)}\n")
    print("| clients | actions/s | median | 99th percentile |\n|---|---|---|---|")
    for count in known.clients:
        load = measure(known.url, known.token, count, known.seconds)
        median, high = (f"{1000 * duration:.1f} ms" for duration in (load.median, load.percentile_99))
        print(f"| {load.clients} | {load.actions_per_second:,.0f} | {median} | {high} |", flush=True)


if __name__ == "__main__":
    main()
