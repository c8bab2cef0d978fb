"""How sure a score is: plain numpy, no knowledge of tasks or models."""
