"""Settings as data: JSON, measures of risk and environments from text, what a length implies."""
