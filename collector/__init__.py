"""What was seen, kept: ring reader, windows, device counters, calibration, traces."""
