"""The token of a run's policy server, which only its owner knows."""

import os
import stat

import pytest

from callboard.errors import CallboardError
from callboard.launch.serving.access_token import make_token, read_token


def test_a_token_is_kept_as_long_as_no_other_user_knows_it(tmp_path):
    path = tmp_path / "token"
    first = make_token(path)
    assert make_token(path) == first and stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_run_that_was_shared_gets_another_token_when_it_is_resumed(tmp_path, mode):
    path = tmp_path / "token"
    first = make_token(path)
    path.chmod(mode)
    second = make_token(path)
    assert second != first and stat.S_IMODE(path.stat().st_mode) == 0o600 and make_token(path) == second


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_a_token_of_another_user_is_replaced(tmp_path):
    path = tmp_path / "token"
    first = make_token(path)
    os.chown(path, 65534, 65534)
    assert make_token(path) != first and path.stat().st_uid == 0


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "known").write_text("a-token-that-others-know\n")
    (tmp_path / "known").chmod(0o600)
    (tmp_path / "token").symlink_to(tmp_path / "known")
    assert make_token(tmp_path / "token") != "a-token-that-others-know"
    assert (tmp_path / "known").read_text() == "a-token-that-others-know\n"


def test_a_file_of_the_users_own_must_be_closed(tmp_path):
    path = tmp_path / "token"
    path.write_text("a-token-of-its-own\n")
    path.chmod(0o644)
    with pytest.raises(CallboardError, match=f"^other users can read the token in {path}: chmod 600 {path}$"):
        read_token(path)
