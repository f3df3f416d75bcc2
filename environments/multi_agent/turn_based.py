"""Turn-based environments of PettingZoo as parallel ones, by PettingZoo's own conversion."""

from collections.abc import Mapping
from typing import Any

from ...errors import CallboardError
from ..adapters.gymnasium_checks import check_flags
from .agent_rewards import finite_reward

_BY_AGENT = ("terminations", "truncations", "rewards", "infos")


def as_parallel(environment: Any, name: str) -> Any:
    """Returns a parallel environment, without what slows a turn-based one down that is behind it.

    Args:
      environment: a `ParallelEnv` or an `AECEnv`.
      name: its name, for messages.
    """
    converted = type(environment).__module__ == "pettingzoo.utils.conversions" and hasattr(environment, "aec_env")
    if not converted and not hasattr(environment, "agent_iter"):
        return environment
    from pettingzoo.utils import conversions

    turn_based = _without_checks(environment.aec_env if converted else environment)
    if isinstance(turn_based, conversions.parallel_to_aec_wrapper):
        return turn_based.env
    parallelizable = turn_based.metadata.get("is_parallelizable")
    checked = CheckedTurns(turn_based, name)
    if converted:
        return type(environment)(checked)
    return (conversions.aec_to_parallel if parallelizable else conversions.turn_based_aec_to_parallel)(checked)


class CheckedTurns:
    """A turn-based environment whose agents, ends, rewards and infos are checked where they change.

    The conversion indexes, compares and adds them before anything of Callboard sees them: an end that is a text takes
    an agent out of the game, a missing entry is a `KeyError`.
    """

    def __init__(self, environment: Any, name: str) -> None:
        self._environment, self._name = environment, name

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "_environment":
            raise AttributeError(attribute)
        return getattr(self._environment, attribute)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        self._environment.reset(seed=seed, options=options)
        self._check("reset")

    def step(self, action: Any) -> None:
        self._environment.step(action)
        self._check("step")

    def _check(self, method: str) -> None:
        name, agents = self._name, getattr(self._environment, "agents", None)
        if not isinstance(agents, list | tuple):
            raise CallboardError(f"{method!r} of {name} leaves no list 'agents' of those that are in the game")
        parts: list[Any] = [getattr(self._environment, what, None) for what in _BY_AGENT]
        for what, part in zip(_BY_AGENT, parts, strict=True):
            if not isinstance(part, Mapping):
                raise CallboardError(f"{method!r} of {name} leaves no dictionary {what!r} by agent")
            for agent in agents:
                if agent not in part:
                    raise CallboardError(f"{method!r} of {name} gives agent {str(agent)!r} no entry in {what!r}")
        terminations, truncations, rewards, infos = parts
        for agent in agents:
            beginning = f"{method!r} of {name} gives agent {str(agent)!r}"
            check_flags(beginning, terminations[agent], truncations[agent])
            finite_reward(name, str(agent), rewards[agent], method)
            if not isinstance(infos[agent], Mapping):
                raise CallboardError(f"{beginning} the info {infos[agent]!r:.100}, no dictionary")
        selected = getattr(self._environment, "agent_selection", None)
        if agents and selected not in agents:
            raise CallboardError(
                f"{method!r} of {name} leaves agent_selection {str(selected)!r}, which is none of its agents: "
                f"{', '.join(map(str, agents))}"
            )


def _without_checks(turn_based: Any) -> Any:
    """Returns a turn-based environment without PettingZoo's outer wrappers that only check how it is called.

    They take a third of the time of a step of `simple_spread`.
    """
    from pettingzoo.utils import wrappers

    while isinstance(turn_based, wrappers.OrderEnforcingWrapper | wrappers.AssertOutOfBoundsWrapper):
        turn_based = turn_based.env
    return turn_based
