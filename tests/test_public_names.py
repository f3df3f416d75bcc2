"""The names that are imported from `callboard` itself."""

import importlib
import os
import subprocess
import sys

import pytest

import callboard


@pytest.mark.parametrize("name", callboard.__all__)
def test_a_public_name_is_the_object_of_its_module(name):
    module = importlib.import_module(callboard._MODULES[name], "callboard")
    assert getattr(callboard, name) is getattr(module, name)
    assert name in dir(callboard)


def test_every_module_belongs_to_a_public_name():
    assert set(callboard._MODULES) == set(callboard.__all__)


def test_other_names_are_no_attributes():
    with pytest.raises(AttributeError, match="module 'callboard' has no attribute 'Sesion'"):
        callboard.Sesion  # noqa: B018
    with pytest.raises(ImportError):
        from callboard import Sesion  # noqa: F401


def test_importing_callboard_imports_nothing_large():
    code = (
        "import sys, callboard\n"
        "assert not {'tensorflow', 'launchpad', 'numpy'} & set(sys.modules)\n"
        "from callboard import Experiment\n"
        "assert not {'tensorflow', 'launchpad'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("given, found", [(None, "1"), ("0", "0")])
def test_importing_callboard_turns_onednn_on_unless_it_is_set(given, found):
    environment = {name: value for name, value in os.environ.items() if name != "TF_ENABLE_ONEDNN_OPTS"}
    environment |= {} if given is None else {"TF_ENABLE_ONEDNN_OPTS": given}
    code = "import callboard, os; print(os.environ['TF_ENABLE_ONEDNN_OPTS'])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == f"{found}\n", done.stderr


def test_names_of_earlier_versions_are_those_of_today():
    from callboard.launch.experiments import policy_settings
    from callboard.launch.launchers.ray import own_loop, parts

    assert (parts.Parts, parts.start_parts) == (own_loop.Servers, own_loop.start_servers)
    assert (parts.rollout, parts.train) == (own_loop.rollout, own_loop.train)
    assert policy_settings.FrozenPolicy is policy_settings.TrainedPolicy


def test_a_node_of_the_user_may_have_the_rules_of_an_earlier_version():
    import launchpad as lp

    from callboard.launch.nodes import node
    from callboard.launch.nodes.user_node import USER_NODE_RULES, UserNode

    class WithPolicy(lp.PyNode):
        policy = node.NodePolicy(stop_order=3)

    assert node.NodePolicy is node.NodeRules
    assert UserNode("own/0", WithPolicy(print)).rules == node.NodeRules(stop_order=3)
    assert UserNode("own/0", lp.PyNode(print)).rules == USER_NODE_RULES


def test_a_launcher_may_have_the_methods_of_an_earlier_version():
    from callboard.launch.launchers import launcher

    class Own(launcher.Launcher):
        name = "own"

        def local_part(self, experiment):
            return launcher.LocalPart(experiment.learners, ())

        def run(self, program, run, monitor):
            pass

    experiment = callboard.Experiment("ppo", env="CartPole-v1")
    assert Own().local_nodes(experiment) == launcher.LocalNodes(1, ())
