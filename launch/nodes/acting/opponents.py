"""Fixed policies that play in the environments of actors: snapshots of a learning policy, and policies of other runs.

The learner of the policy keeps its snapshots, in memory and as files; the first policy's learner also serves the saved
policies.  Nodes that act fetch them.
"""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ....agents.agent import Policy
from ....agents.variables.array_parts import ArrayParts
from ....agents.variables.weights import Unpacking, pack_weights
from ....errors import CallboardError
from ...experiments.policy_settings import Snapshots, TrainedPolicy, policy_setting
from ...experiments.settings import plain
from ...run_directory.file_errors import file_error
from ...run_directory.layout import RunDirectory
from ...run_directory.policy_weights import read_policy, save_policy
from ...saved.saved_policies import read_trained, trained_agent
from ..node import NodeContext, NodeHandle, Unreachable

_FETCH_SECONDS = 1.0

Numbered = dict[int, np.ndarray]
"""Weights, packed by `pack_weights`, by number: of a snapshot from 0 on, 0 for a saved policy."""
Announced = dict[int, np.ndarray | int]
"""The same, with the size in bytes in place of weights that are to be fetched in parts."""


class ServedPolicies:
    """The fixed policies that a learner serves; takes the snapshots of its policy and keeps the newest, also on disk.

    Args:
      directory: directory of the policy.
      snapshots: when to take them, by the name that they play under.
      trained: policies of other runs, by name.
      notify: sends a line of text to the user.
    """

    def __init__(
        self,
        directory: RunDirectory,
        snapshots: Mapping[str, Snapshots],
        trained: Mapping[str, TrainedPolicy],
        notify: Callable[[str], None],
    ):
        self._directory = directory
        self._snapshots = snapshots
        self._trained = trained
        self._notify = notify
        self.takes_snapshots = bool(snapshots)
        """Whether `take_due` ever has anything to do."""
        self.trained_agents: dict[str, dict[str, Any]] = {}
        """The agents of the saved policies that were loaded, by policy: settings as YAML has them."""
        self._kept: dict[str, Numbered] = {name: {} for name in (*snapshots, *trained)}
        self._taken_at: dict[str, int] = {}
        """Environment steps of the newest snapshots."""
        self._written = True

    def load(self) -> None:
        """Reads the saved policies, and the snapshots of earlier incarnations."""
        for name, policy in self._trained.items():
            self.trained_agents[name] = plain(policy_setting(trained_agent(policy)))
            self._kept[name][0] = pack_weights(read_trained(policy).values)
        for name in self._snapshots:
            for number, path in self._directory.snapshots_of(name).items():
                try:
                    saved = read_policy(path)
                except CallboardError as error:
                    self._notify(f"a snapshot is left out: {error}")
                    continue
                self._kept[name][number] = pack_weights(saved.values)
                self._taken_at[name] = max(int(saved.further["environment_steps"]), self._taken_at.get(name, 0))
        self._forget_old()

    def take_due(self, environment_steps: int, policy: Policy) -> None:
        """Takes the snapshots that are due after so many environment steps of the run; the first at once."""
        for name, setting in self._snapshots.items():
            if name in self._taken_at and environment_steps < self._taken_at[name] + setting.every:
                continue
            kept = self._kept[name]
            number = max(kept, default=-1) + 1
            self._taken_at[name] = environment_steps
            kept[number] = pack_weights([variable.numpy() for variable in policy.variables])
            try:
                self._directory.make(self._directory.snapshots)
                save_policy(self._directory.snapshot(name, number), policy, environment_steps=environment_steps)
                self._written = True
            except OSError as error:
                if self._written:
                    self._notify(f"a snapshot could not be written: {file_error(error)}; training continues")
                self._written = False
        self._forget_old()

    def others_than(self, known: Mapping[str, Sequence[int]], most: int) -> dict[str, Announced]:
        """Returns the weights whose numbers are not known; beyond `most` bytes in all, only their sizes."""
        others: dict[str, Announced] = {}
        for name, kept in self._kept.items():
            others[name] = {}
            for number, packed in dict(kept).items():
                if number not in known.get(name, ()):
                    most -= len(packed)
                    others[name][number] = packed if most >= 0 else len(packed)
        return others

    def part(self, name: str, number: int, offset: int, size: int) -> np.ndarray | None:
        """Returns at most `size` bytes of weights from `offset` on; None if they are no longer kept."""
        packed = self._kept.get(name, {}).get(number)
        return None if packed is None else packed[offset : offset + size]

    def _forget_old(self) -> None:
        for name, setting in self._snapshots.items():
            kept = self._kept[name]
            for number in sorted(kept)[: -setting.keep]:
                del kept[number]
                self._directory.snapshot(name, number).unlink(missing_ok=True)


class Opponents:
    """The fixed policies of a node that acts, with the weights that their learners serve.

    Weights that arrive wait until no episode needs those that they replace; if a policy has no other member, they
    replace them at once.

    Args:
      learners: handles of the learners that serve them.
      variables: variables of each policy or snapshot's policy, by name: `old`, or `past/0`, `past/1`, ...
      context: context of the node.
    """

    def __init__(
        self, learners: Sequence[NodeHandle], variables: Mapping[str, Sequence[tf.Variable]], context: NodeContext
    ):
        self._learners = learners
        self._variables = variables
        self._unpack = {name: Unpacking(of_policy) for name, of_policy in variables.items()}
        self._context = context
        self._lock = threading.Lock()
        self._parts = ArrayParts()
        self._incoming: tuple[str, str, int] | None = None
        self._known: dict[str, set[int]] = {}
        self._arrived: dict[str, tuple[int, np.ndarray]] = {}
        self._failure: Exception | None = None
        self.numbers: dict[str, int] = {}
        """Numbers of the weights that the variables hold, by the same names."""

    def wait(self) -> bool:
        """Waits for the first weights of each policy; returns False if the run stops first."""
        if not self._variables:
            return not self._context.stop.is_set()
        wanted = {name.partition("/")[0] for name in self._variables}
        while not self._context.stop.is_set():
            self._context.progress.waits("fixed policies")
            self.fetch()
            self.apply(lambda name: False)
            if wanted <= {name.partition("/")[0] for name in self.numbers}:
                return True
            self._context.stop.wait(0.05)
        return False

    def fetch(self) -> None:
        """Fetches weights that are new."""
        if not self._variables:
            return
        for learner in self._learners:
            known = {name: sorted(numbers) for name, numbers in self._known.items()}
            try:
                self._fetch(learner, known)
            except Unreachable:
                self._parts.shrink()  # It restarts, or its link is slow; the weights at hand stay valid.

    def _fetch(self, learner: NodeHandle, known: Mapping[str, Sequence[int]]) -> None:
        client = learner.client(5.0)
        for name, numbered in client.get_fixed(known, self._parts.whole_bytes).items():
            for number, packed in sorted(numbered.items()):
                if self._member(name, int(number)) is None:
                    continue
                if isinstance(packed, int):
                    packed = self._receive(client, (learner.name, name, int(number)), packed)
                    if packed is None or not len(packed):
                        return
                with self._lock:
                    member = self._member(name, int(number))
                    if member is not None:
                        self._known.setdefault(name, set()).add(int(number))
                        self._arrived[member] = int(number), packed

    def _receive(self, client: Any, which: tuple[str, str, int], total: int) -> np.ndarray | None:
        if self._incoming != which:
            self._parts.begin(total)
            self._incoming = which
        packed = self._parts.receive(
            functools.partial(client.get_fixed_part, *which[1:]), lambda: not self._context.stop.is_set()
        )
        if packed is None or len(packed):
            self._incoming = None
        return packed

    def fetch_in_background(self) -> None:
        """Keeps fetching in a thread until the node stops."""
        if not self._variables:
            return

        def fetch_until_stop() -> None:
            while not self._context.stop.wait(_FETCH_SECONDS):
                try:
                    self.fetch()
                except Exception as error:
                    self._failure = error
                    return

        threading.Thread(target=fetch_until_stop, name="fixed policies", daemon=True).start()

    def apply(self, in_use: Callable[[str], bool]) -> None:
        """Assigns the weights that have arrived to the variables of policies that are not in use.

        Raises:
          Exception: the thread that fetches them has ended with it.
        """
        if self._failure is not None:
            raise self._failure
        if not self._arrived:
            return
        with self._lock:
            for name in [name for name in self._arrived if len(self._members(name)) == 1 or not in_use(name)]:
                number, packed = self._arrived.pop(name)
                for variable, value in zip(self._variables[name], self._unpack[name](packed), strict=True):
                    variable.assign(value)
                self.numbers[name] = number

    def choose(self, policy: str, rng: np.random.Generator) -> str:
        """Returns a snapshot's member at random, of those that have weights and are not about to be replaced."""
        members = [name for name in self.numbers if name.startswith(f"{policy}/")]
        ready = [name for name in members if name not in self._arrived]
        # If all are to be replaced, new episodes use only one of them, so that the others become free.
        ready = ready or [max(members, key=self.numbers.__getitem__)]
        return ready[int(rng.integers(len(ready)))]

    def player(self, policy: str) -> str:
        """Returns the name under which a policy is rated: `past@3` of a snapshot's member."""
        if "/" not in policy:
            return policy
        return f"{policy.partition('/')[0]}@{self.numbers.get(policy, 0)}"

    def _member(self, name: str, number: int) -> str | None:
        if name in self._variables:
            return name
        members = self._members(name)
        return members[number % len(members)] if members else None

    def _members(self, name: str) -> list[str]:
        """Returns the members of the policy of this name, or of the policy that a member of this name belongs to."""
        policy = name.partition("/")[0]
        return [member for member in self._variables if member.startswith(f"{policy}/")]
