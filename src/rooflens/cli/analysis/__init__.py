"""What `rooflens analyze` tells of steps over time: of traces, and of rings where [trace] is installed."""
