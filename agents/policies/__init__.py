"""What acts: the compiled policies of the agents, over one batch or several, and the checks of actions."""
