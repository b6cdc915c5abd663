"""Snapshot and Totals to Prometheus, OTLP, the HTTP API and trace files."""
