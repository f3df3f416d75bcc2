"""Serves the policy of a run over HTTP with Ray Serve.

    python examples/serve_policy.py runs/x --port 8000

Needs the extra `serve`, which `make install` includes.  A request is JSON, and so is its answer:

    curl localhost:8000 -d '{"observation": [0.1, 0.0, -0.05, 0.0]}'
    {"action": 1, "state": []}

The server keeps no session: it returns the state of a policy with memory as a list of arrays, and the client sends it
with the next observation, together with the `reward` if the policy uses rewards.  Requests that arrive at the same time
are answered by one call of the policy.
"""

import argparse
import signal
import threading
from typing import Any

import numpy as np
import ray
import tree
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

from callboard import CallboardError, load_policy
from callboard.environments.batches.given_observations import read_numbers

MAX_BATCH = 64
BATCH_SECONDS = 0.002


@serve.deployment(max_ongoing_requests=4 * MAX_BATCH)
class PolicyServer:
    """Answers requests with the actions of a policy, a batch of them at a time.

    Args:
      source: the policy, see `load_policy`.
    """

    def __init__(self, source: str):
        self._policy = load_policy(source)
        self._initial_state = self._policy.initial_state()

    async def __call__(self, request: Request) -> JSONResponse:
        try:
            body = await request.json()
            given = (body["observation"], body.get("state") or [], body.get("reward", 0.0))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return JSONResponse({"error": 'send JSON such as {"observation": [0.0, 1.0]}'}, 400)
        try:
            call = tuple(map(_arrays, given, ("the observation", "the state", "the reward")))
        except CallboardError as error:
            return JSONResponse({"error": str(error)}, 400)
        answer = await self._act(call)
        return JSONResponse(answer, 400 if "error" in answer else 200)

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=BATCH_SECONDS)
    async def _act(self, calls: list[Any]) -> list[dict[str, Any]]:
        try:
            return self._act_together(calls)
        except (CallboardError, ValueError, TypeError, KeyError):
            # One of them is wrong: the others still get their actions.
            return [self._act_alone(call) for call in calls]

    def _act_alone(self, call: Any) -> dict[str, Any]:
        try:
            return self._act_together([call])[0]
        except (CallboardError, ValueError, TypeError, KeyError) as error:
            return {"error": " ".join(str(error).split())}

    def _act_together(self, calls: list[Any]) -> list[dict[str, Any]]:
        observations, states, rewards = zip(*calls, strict=True)
        first = [not state for state in states]
        state = tree.map_structure(lambda *leaves: np.stack(leaves), *map(self._state, states))
        actions, after = self._policy(_stacked(observations), state, np.array(rewards, np.float32), np.array(first))
        return [
            {
                "action": tree.map_structure(lambda leaf, row=row: leaf[row].tolist(), actions),
                "state": [leaf[row].tolist() for leaf in tree.flatten(after)],
            }
            for row in range(len(calls))
        ]

    def _state(self, arrays: list[np.ndarray]) -> Any:
        """Returns the state that a client sent back, or the initial one."""
        return tree.unflatten_as(self._initial_state, arrays) if arrays else self._initial_state


def _arrays(given: Any, name: str) -> Any:
    """Returns an observation, a reward or a list of states as arrays."""
    if name == "the state":
        if not isinstance(given, list):
            raise CallboardError("the state must be the list of arrays that the answer before contained")
        return [_arrays(array, "a state") for array in given]
    if isinstance(given, dict) and name == "the observation":
        return {key: _arrays(part, name) for key, part in given.items()}
    array = read_numbers(given, name)
    if not np.isfinite(array).all():
        raise CallboardError(f"{name} is NaN or infinite")
    return array


def _stacked(observations: Any) -> Any:
    """Stacks observations, which are arrays, or dictionaries of them."""
    if isinstance(observations[0], dict):
        return {key: _stacked([observation[key] for observation in observations]) for key in observations[0]}
    return np.stack(observations)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serves the policy of a run over HTTP.")
    parser.add_argument("policy", help="a run, runs/x@latest, a checkpoint, a URL, or an export")
    parser.add_argument("--port", type=int, default=8000, help="port on this machine (8000)")
    parser.add_argument("--replicas", type=int, default=1, help="processes that act (1)")
    parser.add_argument("--ray-address", default="local", help="a Ray cluster; by default a new one on this machine")
    options = parser.parse_args()
    stopped = threading.Event()
    ray.init(options.ray_address, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": options.port})
        deployment: Any = PolicyServer
        serve.run(deployment.options(num_replicas=options.replicas).bind(options.policy))
        print(f"serving {options.policy} at http://127.0.0.1:{options.port}", flush=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        stopped.wait()
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
