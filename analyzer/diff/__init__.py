"""Whether an engine changed between two recordings, traffic and noise taken off: pure functions over step tables."""
