"""Functions that searches name by their paths."""

NUMBER = 5


def trial(settings, reporter):
    """Reports a value that grows with `x`, at every step."""
    (reporter.directory / "mine.txt").write_text(str(settings["x"]))
    for step in range(1, settings["max_steps"] + 1):
        reporter.report(10.0 * settings["x"] + step, step)


def cpus(settings):
    return 0.5 * settings["actors"]


def half(settings):
    return 0.5


def nothing(settings):
    return None
