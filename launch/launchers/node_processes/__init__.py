"""Processes of nodes: the forkserver that starts them, their preparation and their log files."""
