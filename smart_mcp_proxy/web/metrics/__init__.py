"""Figures of a running gateway in the format of Prometheus."""
