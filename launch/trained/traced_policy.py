"""A policy as two TensorFlow functions of named tensors, which exports write."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ... import specs
from ...agents.agent import Policy
from ...data import Nest, Timestep
from ..plain_names import plain_names

TensorSpecs = dict[str, tf.TensorSpec]


class Signatures(NamedTuple):
    """Inputs and outputs of a policy, by name; the batch axis is None."""

    inputs: TensorSpecs
    outputs: TensorSpecs
    state: TensorSpecs
    """Outputs of `initial_state`, which takes `batch_size`; also inputs of the acting function, and outputs."""


class TracedPolicy(NamedTuple):
    """A policy as concrete functions."""

    act: Any
    """Maps the inputs, by name, to the outputs, by name."""
    initial_state: Any
    """Maps `batch_size`, an int32, to the state, by name."""
    signatures: Signatures
    weights: Sequence[tf.Variable]

    @property
    def samples(self) -> bool:
        """Whether outputs depend on random numbers."""
        seen, found = set(), [tensor.op for tensor in self.act.outputs]
        while found:
            operation = found.pop()
            if operation.name not in seen:
                seen.add(operation.name)
                if "Random" in operation.type or operation.type == "Multinomial":
                    return True
                found += [tensor.op for tensor in operation.inputs]
        return False


def trace_policy(policy: Policy, spec: specs.EnvironmentSpec) -> TracedPolicy:
    """Returns a policy as functions of named tensors.

    Each leaf of a nest has its own name, such as `observation_camera` (see `leaf_names`).  The inputs from the timestep
    are the observation, `first`, and the other fields that the policy uses.  A policy that samples its actions uses a
    new random seed in every call.

    Args:
      policy: the policy, in the mode in which it is to act.
      spec: spec of its environment.
    """
    observation = named_leaves("observation", specs.tensor_spec(spec.observation, (None,)))
    state_nest = state_spec(policy)
    state = named_leaves("state", state_nest)
    number, flag = tf.TensorSpec((None,), tf.float32), tf.TensorSpec((None,), tf.bool)
    optional = {"reward": number, "discount": number, "last": flag}
    given: Mapping[str, tf.Tensor] = {}

    def act(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        nonlocal given
        given = inputs
        batch_size = tf.shape(inputs["first"])[0]
        timestep = Timestep(
            observation=tree.unflatten_as(spec.observation, [inputs[name] for name in observation]),
            reward=inputs.get("reward", tf.zeros((batch_size,))),
            discount=inputs.get("discount", tf.ones((batch_size,))),
            first=inputs["first"],
            last=inputs.get("last", tf.zeros((batch_size,), tf.bool)),
        )
        before = tree.unflatten_as(state_nest, [inputs[name] for name in state])
        seed = tf.random.uniform((2,), maxval=tf.int32.max, dtype=tf.int32)
        action, _, after = policy(timestep, before, tf.range(batch_size), seed)
        return {**named_leaves("action", action), **dict(zip(state, tree.flatten(after), strict=True))}

    def trace(inputs: TensorSpecs) -> Any:
        return tf.function(act, autograph=False).get_concrete_function(**inputs)

    required = {**observation, **state, "first": flag}
    trace({**required, **optional})
    inputs = {**required, **{name: field for name, field in optional.items() if given[name].consumers()}}
    acting = trace(inputs)
    starting = tf.function(
        lambda batch_size: named_leaves("state", policy.initial_state(batch_size)), autograph=False
    ).get_concrete_function(tf.TensorSpec((), tf.int32, "batch_size"))
    outputs = {name: tf.TensorSpec(tensor.shape, tensor.dtype) for name, tensor in acting.structured_outputs.items()}
    return TracedPolicy(acting, starting, Signatures(inputs, outputs, state), list(policy.variables))


def state_spec(policy: Policy) -> Nest:
    """Returns the specs of a policy's recurrent state for any number of environments, leaves `[None, ...]`."""
    return tree.map_structure(lambda leaf: tf.TensorSpec((None, *leaf.shape[1:]), leaf.dtype), policy.initial_state(1))


def leaf_names(prefix: str, nest: Nest) -> list[str]:
    """Returns a name for each leaf of a nest, in the order of `tree.flatten`: the prefix, keys, fields and indices.

    They consist of ASCII letters, digits and `_` (see `plain_names`); empty keys are left out.
    """
    paths = [(prefix, *path) for path, _ in tree.flatten_with_path(nest)]
    return plain_names(["/".join(filter(None, map(str, path))) for path in paths])


def named_leaves(prefix: str, nest: Nest) -> dict[str, Any]:
    """Returns the leaves of a nest by their `leaf_names`."""
    return dict(zip(leaf_names(prefix, nest), tree.flatten(nest), strict=True))
