"""Code of a user that raises what is no `Exception`, or an exception without a message, around environments."""

import types

import gymnasium
import numpy as np
import pytest

from callboard.agents.policies.batched_policy import BatchedPolicy
from callboard.environments.adapters.gymnasium_checks import CheckedSteps, check_reset_error, rendered
from callboard.environments.batches.goal_rewards import _Vectorized
from callboard.environments.batches.tasks import check_options_error, task_errors
from callboard.environments.batches.user_errors import creation_errors, needs_package, user_errors
from callboard.environments.checks.trial_process import error_line
from callboard.environments.multi_agent.policy_slots import _agents_tried
from callboard.environments.workers.serving import _error
from callboard.errors import CallboardError

NOT_SHOWN = "its message cannot be shown, since its __str__ fails"


class Silent:
    def __str__(self):
        raise RuntimeError


class SilentError(Silent, Exception):
    pass


class SilentTypeError(Silent, TypeError):
    pass


class SilentImportError(Silent, ImportError):
    pass


class SilentNotImplemented(Silent, NotImplementedError):
    pass


def raise_error(error):
    raise error


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), SilentError()])
def test_rewards_of_goals_may_raise_anything(error):
    method = _Vectorized("compute_reward", [lambda *_: raise_error(error)])
    with pytest.raises(CallboardError, match=f"compute_reward fails: {type(error).__name__}"):
        method(0, np.zeros((1, 2)), np.zeros((1, 2)), [{}])


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), SilentError()])
def test_a_task_may_raise_anything(error):
    with pytest.raises(CallboardError, match=f"does not take the task .*{type(error).__name__}"), task_errors("x", {}):
        raise error


@pytest.mark.parametrize(
    ("raised", "context"),
    [
        (SilentImportError, lambda: needs_package("x", "y", "y")),
        (SilentImportError, lambda: user_errors("x", {}, list)),
        (SilentError, lambda: creation_errors("x", SilentError)),
    ],
)
def test_an_error_of_a_constructor_needs_no_message(raised, context):
    with pytest.raises(CallboardError, match=NOT_SHOWN), context():
        raise raised


def test_errors_that_are_looked_at_need_no_message():
    check_options_error("x", SilentTypeError())
    check_reset_error(types.SimpleNamespace(spec=None), SilentTypeError())
    with pytest.raises(SilentTypeError), user_errors("x", {}, list):
        raise SilentTypeError
    with pytest.raises(CallboardError, match=NOT_SHOWN):
        rendered(types.SimpleNamespace(render=lambda: raise_error(SilentNotImplemented())), "x")


@pytest.mark.parametrize("error", [SilentError(), SystemExit(3), GeneratorExit("x")])
def test_a_trial_tells_what_was_raised(error):
    with pytest.raises(type(error)) as caught:
        raise_error(error)
    for line in (error_line(caught.value, "x", "step"), str(_error(caught.value))):
        assert NOT_SHOWN in line or "sys.exit(3)" in line or "GeneratorExit" in line or "'exit'" in line
    assert len(error_line(ValueError("y" * 10**6).with_traceback(caught.value.__traceback__), "x", "step")) < 1000


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), SilentError()])
def test_a_mapping_may_raise_anything(error):
    with pytest.raises(CallboardError, match=f"fails for agent 'a' in episode 0: {type(error).__name__}"):
        _agents_tried("m:f", lambda *_: raise_error(error), ["a"])


def test_a_policy_that_cannot_be_traced_may_raise_anything():
    policy = types.SimpleNamespace(initial_state=lambda size: raise_error(SystemExit(3)))
    with pytest.raises(CallboardError, match=r"SystemExit: 3"):
        BatchedPolicy(policy, types.SimpleNamespace(spec=types.SimpleNamespace(observation={}, action={})))


class Leaving(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        raise SystemExit(3)

    def step(self, action):
        raise GeneratorExit


def test_a_process_of_an_environment_is_not_ended_by_it():
    environment = CheckedSteps(Leaving())
    for call, kind in ((environment.reset, "SystemExit: 3"), (lambda: environment.step(0), "GeneratorExit")):
        with pytest.raises(CallboardError, match=f"raises {kind}; let it raise an exception instead"):
            call()


def test_a_setting_that_is_refused_before_anything_is_called_is_named_alone():
    error = CallboardError("env_python: there is no 'python3.99'")
    assert error_line(error, "x", "import") == str(error)
    assert error_line(error, "x", "reset") == f"environment 'x', in 'reset': {error}"
