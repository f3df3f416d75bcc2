"""The measurement of a policy server."""

import numpy as np
from open_door import TOKEN, opened

from callboard.benchmarks.policy_server import _clients


def test_clients_act_and_leave_no_episode():
    with opened(places=3) as served:
        durations = _clients(served.url, TOKEN, 3, 0.05, 0.3)
        assert len(durations) > 3 and np.all(durations > 0) and np.all(durations < 5)
        assert served.episodes.open_episodes == 0
