"""The interfaces that authors of tasks, models, metrics and filters implement or call."""
