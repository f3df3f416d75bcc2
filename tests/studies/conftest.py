"""The fixtures that start the real command."""

from started_commands import case, command_run, hosts, launcher_named, start, train

__all__ = ["case", "command_run", "hosts", "launcher_named", "start", "train"]
