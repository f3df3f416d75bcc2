"""What a process of a run needs from its machine: ports and who may connect, sockets, temporary files, exit."""
