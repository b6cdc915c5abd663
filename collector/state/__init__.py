"""What is kept between two runs of a sidecar: what was learned of engines, and how far a trace has come."""
