"""Steps environments with a policy and writes the records, as an actor node does with its policies."""

from callboard.agents.policies.acting import CompiledPolicy, Episode, PolicyRecorder, Stepper
from callboard.data import Version
from callboard.environments import BatchedEnvironment
from callboard.replay import Writer


class Actor:
    """Steps a batch of environments with a policy and writes the records.

    Args:
      environment: the batch of environments.
      policy: the compiled policy for it.
      writer: where records go.
    """

    def __init__(self, environment: BatchedEnvironment, policy: CompiledPolicy, writer: Writer):
        self.writer = writer
        self.version = Version(0, 0)
        self.stepper = Stepper(environment)
        self._recorder = PolicyRecorder(policy, writer)

    @property
    def environment_steps(self) -> int:
        """Actions that were executed."""
        return self.stepper.environment_steps

    @property
    def ignored_timesteps(self) -> int:
        """Actions that the environment ignored because they followed the last timestep of an episode."""
        return self.stepper.ignored_timesteps

    def step(self) -> list[Episode]:
        """Acts once in all environments and returns the episodes that ended."""
        action = self._recorder.act(self.stepper.timestep, self.version)
        episodes = self.stepper.step(action)
        self._recorder.record(self.stepper.timestep)
        return episodes

    def end_sequence(self) -> None:
        """Writes the newest timestep before it is acted on, see `PolicyRecorder.end_sequence`."""
        self._recorder.end_sequence(self.stepper.timestep)
