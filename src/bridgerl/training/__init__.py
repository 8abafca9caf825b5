"""Training one run: the loop and its parts, environments, replay, episodes, the process."""
