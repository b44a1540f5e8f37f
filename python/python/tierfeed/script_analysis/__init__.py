"""Says from the source of a training script what a job of it needs, without running it."""
