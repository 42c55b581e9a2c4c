"""Bytes, pipes, child processes, open files and clocks: input and output that knows no protocol."""
