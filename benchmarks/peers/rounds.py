"""Rounds in which our side and every peer train once, in turn, on the same cores.

On CartPole-v1 with an MLP: environment steps per second while learning, with the same batch on all sides, and seconds
from the command to a mean return of 475 over 100 episodes, with the settings that each side has published for it.  On
images of 64x64x3 with the IMPALA ResNet: frames learned from per second.  On PettingZoo's simple_spread, with PPO and
one policy for its three agents, for the peers that have that: environment steps per second while learning, and seconds
to a mean return of -68, with the same settings on all sides.  On EnvPool's Pong, with PPO and CleanRL's settings on
both sides: environment steps per second while learning.  Updates per second from replay, for the peers that have such
agents: DQN, ours with priorities, on CartPole-v1 and SAC on Pendulum-v1, with the same networks, batches and numbers of
updates for a step.

Everything is counted outside the libraries (`inside.work`): steps and returns by a wrapper around the environments,
frames where a learner receives its batch.
"""

import functools
import pathlib
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..results import CaseResult, spread
from ..side import SideFailed
from . import ours
from .inside.work import REPLAY
from .program import Program, ProgramFailed, interpreter, rates, seconds_to, started

_HERE = pathlib.Path(__file__).parent
_OURS = "ours"
_EPISODES = 100


class Peer(NamedTuple):
    """A library: its name, virtual environment and script, and the target for our steps/s on CartPole over its own."""

    name: str
    venv: str
    script: str
    target: float | None = None
    tasks: tuple[str, ...] = ("cartpole", "images")
    """What it is measured on, see `inside.work`."""

    def python(self) -> pathlib.Path:
        return interpreter(self.venv)

    def command(self, task: str, goal: str, seed: int, directory: str) -> list[str]:
        script = _HERE / "inside" / f"{self.script}.py"
        return [str(self.python().absolute()), str(script), task, goal, str(seed), directory]


PEERS = (
    Peer("Sample Factory APPO", "sample_factory", "sample_factory_appo", target=3.0),
    Peer("RLlib IMPALA", "rllib", "rllib_impala", target=8.0),
    Peer("RLlib PPO", "rllib", "rllib_ppo", tasks=("cartpole", "images", "spread")),
    Peer("Stable-Baselines3 PPO", "sb3", "sb3_ppo"),
    Peer("Acme IMPALA", "acme", "acme_impala"),
    Peer("sbx PPO", "sbx", "sbx_ppo", tasks=("cartpole",)),
    Peer("PufferLib PPO", "pufferlib", "pufferlib_ppo"),
    Peer("CleanRL PPO", "cleanrl", "cleanrl_ppo", tasks=("pong",)),
    Peer("Stable-Baselines3", "sb3", "sb3_replay", tasks=tuple(REPLAY)),
    Peer("sbx", "sbx", "sbx_replay", tasks=tuple(REPLAY)),
)


class Figure(NamedTuple):
    """The figure of one program."""

    value: float
    ended: bool = False
    """Whether the program was ended before it was done, so that the true value is higher."""
    detail: str = ""
    """Further counts, as text."""


class Contest(NamedTuple):
    """A quantity that is measured for all sides."""

    name: str
    task: str
    goal: str
    unit: str
    measure: Callable[[Program], Figure]
    target: Callable[[Peer], float | None]
    higher_is_better: bool = True


def _rate(program: Program, counted: str, warm_up: float, seconds: float, patience: float) -> Figure:
    found = rates(program, warm_up, seconds, patience)
    detail = f" ({found.steps:,.0f} environment steps/s, {found.frames:,.0f} trained frames/s)"
    return Figure(getattr(found, counted), detail=detail)


def _seconds(program: Program, mean_return: float, limit: float) -> Figure:
    found = seconds_to(program, mean_return, _EPISODES, limit)
    return Figure(limit, ended=True, detail=", not reached") if found is None else Figure(found)


def contests(quick: bool) -> list[Contest]:
    """Return all contests; short ones if `quick`."""
    brief: dict[str, Any] = {"warm_up": 0.0, "seconds": 2.0, "patience": 180.0}
    cartpole = brief if quick else {"warm_up": 5.0, "seconds": 25.0, "patience": 150.0}
    images = brief if quick else {"warm_up": 10.0, "seconds": 40.0, "patience": 240.0}
    several_agents = brief if quick else {"warm_up": 10.0, "seconds": 40.0, "patience": 240.0}
    return [
        Contest(
            "cartpole",
            "cartpole",
            "rate",
            "environment steps/s",
            functools.partial(_rate, counted="steps", **cartpole),
            lambda peer: peer.target,
        ),
        Contest(
            "cartpole to 475",
            "cartpole",
            "score",
            "s",
            functools.partial(_seconds, mean_return=475.0, limit=20.0 if quick else 150.0),
            lambda peer: 1.0,
            higher_is_better=False,
        ),
        Contest(
            "images",
            "images",
            "rate",
            "trained frames/s",
            functools.partial(_rate, counted="frames", **images),
            lambda peer: 1.5,
        ),
        Contest(
            "spread",
            "spread",
            "rate",
            "environment steps/s",
            functools.partial(_rate, counted="steps", **several_agents),
            lambda peer: 5.0,
        ),
        Contest(
            "spread to -68",
            "spread",
            "score",
            "s",
            functools.partial(_seconds, mean_return=-68.0, limit=20.0 if quick else 240.0),
            lambda peer: 0.5,
            higher_is_better=False,
        ),
        Contest(
            "pong",
            "pong",
            "rate",
            "environment steps/s",
            functools.partial(_rate, counted="steps", **images),
            lambda peer: peer.target,
        ),
        *(
            Contest(
                f"replay: {task.upper()}",
                task,
                "rate",
                "updates/s",
                functools.partial(_rate, counted="frames", **cartpole),
                lambda peer: 2.0,
            )
            for task in REPLAY
        ),
    ]


def measure(repeats: int, quick: bool, only: str, notify: Callable[[str], None]) -> list[CaseResult]:
    """Measure all installed peers; see `harness.run_benchmark` for the arguments.

    A side that fails is reported, and the others continue; its cases have fewer repeats, or are omitted.

    Raises:
      SideFailed: there were cases to measure, and none of them could be measured.
    """
    present = [peer for peer in PEERS if peer.python().exists()]
    for peer in PEERS:
        if peer not in present:
            notify(f"{peer.name} is left out: {peer.python()} does not exist, make it with {_HERE / 'setup'}")
    cases: list[CaseResult] = []
    tried = False
    # A running program is ended together with this process, however this process ends.
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        for contest in contests(quick):
            peers = [peer for peer in present if takes_part(peer, contest) and only in _case_name(contest, peer)]
            if peers:
                tried = True
                cases += _measure_contest(contest, peers, repeats, notify)
    finally:
        signal.signal(signal.SIGTERM, before)
    if tried and not cases:
        raise SideFailed("neither side of any case could be measured together with the other")
    return cases


def takes_part(peer: Peer, contest: Contest) -> bool:
    """Return whether a peer is measured in a contest."""
    return contest.task in peer.tasks


def _case_name(contest: Contest, peer: Peer) -> str:
    return f"{contest.name}, {peer.name}"


def _measure_contest(
    contest: Contest, peers: Sequence[Peer], repeats: int, notify: Callable[[str], None]
) -> list[CaseResult]:
    figures: dict[str, list[Figure | None]] = {_OURS: [], **{peer.name: [] for peer in peers}}
    for repeat in range(repeats):
        sides: list[Peer | None] = [None, *peers]
        for peer in sides if repeat % 2 == 0 else reversed(sides):
            name = _OURS if peer is None else peer.name
            figures[name].append(_measure_side(contest, peer, repeat + 1, notify))
    cases = []
    for peer in peers:
        pairs = [(own, other) for own, other in zip(figures[_OURS], figures[peer.name], strict=True) if own and other]
        if not pairs:
            continue
        case = CaseResult(
            _case_name(contest, peer),
            contest.unit,
            [own.value for own, _ in pairs],
            [other.value for _, other in pairs],
            contest.target(peer),
            contest.higher_is_better,
            note=_note([own for own, _ in pairs], [other for _, other in pairs]),
        )
        ratio = spread(case.ratios)
        notify(f"{case.name}: ratio {ratio.median:.3f}, quartiles {ratio.lower:.3f} to {ratio.upper:.3f}")
        cases.append(case)
    return cases


def _measure_side(contest: Contest, peer: Peer | None, seed: int, notify: Callable[[str], None]) -> Figure | None:
    command: Callable[..., list[str]] = ours.command if peer is None else peer.command
    name = _OURS if peer is None else peer.name
    try:
        with started(
            lambda directory: command(contest.task, contest.goal, seed, directory),
            # The signal that Ctrl-C sends to a user's run.
            signal.SIGINT if peer is None else signal.SIGTERM,
        ) as program:
            figure = contest.measure(program)
    except ProgramFailed as failure:
        notify(f"{contest.name}, {name} has failed, and the others continue: {failure}")
        return None
    notify(f"{contest.name}, {name}: {figure.value:,.4g} {contest.unit}{figure.detail}")
    return figure


def _note(own: Sequence[Figure], other: Sequence[Figure]) -> str:
    """Describe which figures are only the waiting time."""
    sides: list[tuple[str, Any]] = [("ours", own), ("the peer", other)]
    counts = [(name, sum(figure.ended for figure in side), len(side)) for name, side in sides]
    return ", ".join(f"{name} not there in {ended} of {count}" for name, ended, count in counts if ended)
