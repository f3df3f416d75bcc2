"""The machine's resources for a process of a run: ports and who may connect, sockets, temporary files, exit."""
