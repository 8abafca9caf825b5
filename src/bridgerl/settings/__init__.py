"""Settings as data: how JSON is read, what an environment's settings say, what a length implies."""
