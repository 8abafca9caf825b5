"""Experiments whose answers are known: the league, the degradation toy, the endpoint error."""
