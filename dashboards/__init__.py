"""What people look at: Grafana JSON, Prometheus rules, the live page, the terminal view."""
