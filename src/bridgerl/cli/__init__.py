"""The command line: one thin file per family of verbs."""
