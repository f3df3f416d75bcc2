"""One of two learners that sum a number; the second one takes no part in the second step.

Prints the first sum, and how the first learner's second step ended.

Args: the addresses of both, separated by a comma; this one's rank; and whether the second one ends, or has no data.
"""

import sys
import threading

import tensorflow as tf

from callboard.launch.nodes.learning.peer_watch import PeerWatch
from callboard.launch.processes.devices import make_strategy


def main(addresses, rank, why):
    strategy = make_strategy(["CPU:0"], addresses.split(","), int(rank))
    begun = threading.Event()
    if rank == "0":
        conditions = {"no data": (begun.is_set, lambda: False), "ended": (lambda: False, begun.is_set)}
        watch = PeerWatch(0, 2, *conditions[why])

    @tf.function
    def step():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))

    print(step().numpy(), flush=True)
    if rank == "0":
        sys.stdin.readline()
        begun.set()
        try:
            step()
        except tf.errors.UnavailableError as error:
            print(watch.has_ended_step, "another learner takes no part" in error.message, flush=True)
    elif why == "no data":
        sys.stdin.readline()


main(*sys.argv[1:])
