"""The embedded engine: a small continuous-batching decoder in NumPy, recorded like a stranger's engine."""
