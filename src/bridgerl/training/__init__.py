"""Training one run: the loop and its parts, replay, evaluation, the process, the display."""
