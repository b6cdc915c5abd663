"""What an engine's own /metrics page tells, turned into window rows; the table of names is data, one file an engine."""
