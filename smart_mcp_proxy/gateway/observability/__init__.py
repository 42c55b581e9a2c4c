"""Figures and traces for monitoring systems, made only where they are asked for."""
