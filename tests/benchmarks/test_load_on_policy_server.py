"""The measurement of a policy server."""

import numpy as np
import pytest
from open_door import TOKEN, free_port, opened

from callboard.benchmarks import policy_server
from callboard.benchmarks.policy_server import _clients


def test_clients_act_and_leave_no_episode():
    with opened(places=3) as served:
        durations = _clients(served.url, TOKEN, 3, 0.05, 0.3)
        assert len(durations) > 3 and np.all(durations > 0) and np.all(durations < 5)
        assert served.episodes.open_episodes == 0


def test_a_server_that_is_not_there_or_refuses_the_token_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(policy_server, "_ANSWER_SECONDS", 0.1)
    with opened(places=1) as served:
        for url, token, says in ((f"http://127.0.0.1:{free_port()}", TOKEN, "refused"), (served.url, "no", "token")):
            with pytest.raises(SystemExit):
                policy_server.main([url, token])
            error = capsys.readouterr().err
            assert f"callboard: no policy server can be measured at {url}: " in error
            assert says in error and error.count("\n") == 1
