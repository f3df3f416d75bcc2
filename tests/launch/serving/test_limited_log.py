"""What a thread may log in a time."""

import logging
import threading

from callboard.launch.serving.limited_log import LimitedLog


def test_lines_of_one_thread_are_short_and_few(caplog):
    now = 0.0
    limit = LimitedLog(lambda: now)

    def flood(name, number):
        for count in range(number):
            try:
                raise ValueError("nonsense\n\x1b[2J" + "x" * 10_000)
            except ValueError:
                logging.getLogger(name).exception("Error handling request %d\nof a peer", count)

    with caplog.at_level(logging.INFO), limit:
        for name in ("aiohttp.server", "asyncio", "aiohttp.web", "root"):
            flood(name, 100)
        assert len(caplog.records) == 20
        assert all("\n" not in one.getMessage() and one.getMessage().isprintable() for one in caplog.records)
        assert all(len(one.getMessage()) < 500 and one.exc_info is None for one in caplog.records)
        now = 3600.0
        logging.warning("later")
        assert caplog.messages[-1] == "later (380 lines before it were left out)"
        # Other threads log as before.
        caplog.clear()
        other = threading.Thread(target=flood, args=("asyncio", 100))
        other.start()
        other.join()
        assert len(caplog.records) == 100
    caplog.clear()
    with caplog.at_level(logging.INFO):
        flood("asyncio", 100)
    assert len(caplog.records) == 100
