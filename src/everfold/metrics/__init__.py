"""Metrics of running jobs for Prometheus, and probes that say whether they make progress."""
