"""Run folders: every file of a run, how it is written to survive a kill, read and checked."""
