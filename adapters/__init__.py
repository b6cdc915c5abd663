"""Engine to steps: the only folder that may import an engine."""
