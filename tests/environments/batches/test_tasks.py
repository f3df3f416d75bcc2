"""Tasks that environments take at their next reset, in every interface."""

import numpy as np
import pytest
from informed_environments import error_of
from test_infos import PROCESSES, SINGLE, VECTOR

from callboard import environments
from callboard.environments.batches.tasks import Tasks, reset_options


def make(factory):
    return environments.make(f"informed_environments:{factory}", 2, range(2))


def lengths(environment, steps, tasks):
    """The lengths of each environment's episodes, where `tasks` are set before the steps of those numbers."""
    if -1 in tasks:
        environment.set_task(tasks[-1])
    environment.reset()
    found, length, was_last = [[], []], [0, 0], np.zeros(2, bool)
    for number in range(steps):
        if number in tasks:
            environment.set_task(tasks[number])
        # The second environment's first episode is cut short, so that the two are out of step.
        timestep = environment.step(np.array([0, 2 if number == 0 else 0], np.int32))
        for index in range(2):
            length[index] += not was_last[index]
            if not was_last[index] and (timestep.last[index] or timestep.first[index]):
                found[index].append(length[index])
                length[index] = 0
        was_last = timestep.last
    return found


@pytest.mark.parametrize("factory", (*SINGLE, *VECTOR, *PROCESSES))
def test_a_task_begins_with_the_next_episode_of_each_environment(factory):
    environment = make(factory)
    first, second = lengths(environment, 30, {1: {"limit": 5}, 20: {"limit": 2}, 25: None})
    assert first[:3] == [3, 5, 5] and first[-2:] in ([2, 3], [2, 2], [3, 3])
    assert second[0] == 1 and 5 in second[1:3] and second.count(5) >= 2
    assert set(first + second) <= {1, 2, 3, 5}
    environment.close()


@pytest.mark.parametrize("factory", (*SINGLE, *VECTOR))
def test_a_task_set_before_the_first_reset_holds_from_the_first_episode(factory):
    first, second = lengths(make(factory), 12, {-1: {"limit": 4}})
    assert set(first) == {4} and second[0] == 1 and set(second[1:]) == {4}


def test_a_vector_environment_of_its_own_gets_the_task_at_once():
    environment = make("OwnVectorWithTasks")
    environment.set_task("any")
    assert environment._environment.tasks == ["any"]


@pytest.mark.parametrize(
    "factory, says",
    [
        ("PlainDm", "PlainDm cannot be set to a task: give it a method 'set_task'"),
        (
            "OwnVector",
            "the vector environment OwnVector cannot be set to a task: give it a method 'set_task', or step ",
        ),
    ],
)
def test_environments_without_tasks_are_refused(factory, says):
    assert says in error_of(lambda: make(factory).set_task({"limit": 5}))


def test_a_task_for_reset_is_a_mapping():
    assert "a task is a mapping of options for its 'reset', not 5" in error_of(lambda: make("Counting").set_task(5))
    assert reset_options("X", None) is None


def test_a_reset_without_options_is_refused():
    environment = make("WithoutOptions")
    environment.set_task({"limit": 5})
    assert "cannot be set to a task: give it a method 'set_task', or let 'reset' take options=None" in error_of(
        environment.reset
    )


def test_an_environment_that_raises_for_a_task_is_refused_in_one_line():
    says = error_of(lambda: environments.check_hooks("informed_environments:SetCounting", {}, False, [{"limt": 5}]))
    assert says.endswith("SetCounting' does not take the task {'limt': 5}: KeyError: 'limit'") and "\n" not in says


def test_each_environment_gets_a_task_once():
    tasks, passed_on = Tasks(2), []
    tasks.pass_on(0, passed_on.append)
    tasks.set("a")
    for index in (0, 0, 1):
        tasks.pass_on(index, passed_on.append)
    assert passed_on == ["a", "a"]
