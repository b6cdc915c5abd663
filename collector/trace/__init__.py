"""Traces on disk: steps, events and counters as Parquet, written live and read by SQL."""
