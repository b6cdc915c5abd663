"""What a recording says over time: its engines, windows, changes and cost, all of it from sums by window and regime."""
