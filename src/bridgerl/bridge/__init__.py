"""The deterministic diffusion bridge from a quantile level to a return: schedules and walk."""
