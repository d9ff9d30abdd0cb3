"""From a launch's arguments to code: specialization, compilation, worker processes."""
