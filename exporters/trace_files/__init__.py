"""Recorded steps as files that other tools open: Chrome traces, Perfetto, OTLP JSON and CSV, written as they come."""
