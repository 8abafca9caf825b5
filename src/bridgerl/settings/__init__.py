"""Settings as data: how dataclasses are read from JSON, and what an environment's settings say."""
