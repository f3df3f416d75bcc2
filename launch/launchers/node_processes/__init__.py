"""Processes of nodes: the forkserver that starts them, their set-up and their log files."""
