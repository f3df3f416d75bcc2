"""Names of nodes, `learner/0` or `learner/red/0` of the policy `red`, and of their metrics."""


def kind_of(node: str) -> str:
    """Returns the kind of a node, such as `learner`."""
    return node.partition("/")[0]


def policy_of(node: str) -> str:
    """Returns the policy that a node belongs to; empty for nodes of the whole run."""
    return node.partition("/")[2].rpartition("/")[0]


def number_of(node: str) -> int:
    """Returns the number of a node among those of its kind and policy; 0 if it has none."""
    number = node.rpartition("/")[2]
    return int(number) if number.isdecimal() else 0


def metric_of(policy: str, name: str) -> str:
    """Returns the name of a metric of a policy: `red/learner/loss`; the name itself if the run has one policy."""
    return f"{policy}/{name}" if policy else name
