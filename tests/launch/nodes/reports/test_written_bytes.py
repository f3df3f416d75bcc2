"""Progress of what writes files."""

import time

from callboard.launch.nodes.progress import Progress
from callboard.launch.nodes.reports.written_bytes import bytes_in, marked_while_files_grow
from callboard.runtime.deadlines import wait_until


def test_progress_is_marked_while_files_grow_and_only_then(tmp_path):
    progress = Progress()
    (tmp_path / "inner").mkdir()
    with marked_while_files_grow(progress, tmp_path, "writing", seconds=0.01):
        marks = [progress.heartbeat().marks]
        for _ in range(3):
            # To write the file anew would be two changes of its size.
            with (tmp_path / "inner" / "file").open("a") as file:
                file.write("a")
            assert wait_until(lambda: progress.heartbeat().marks > marks[-1], 30.0, 0.01)
            marks.append(progress.heartbeat().marks)
        assert marks == sorted(set(marks)) and bytes_in(tmp_path / "inner") == 3
        time.sleep(0.1)
        assert progress.heartbeat()[:3] == (marks[-1], "writing", "slow")
