"""What the author of a task, model, metric or filter writes against."""
