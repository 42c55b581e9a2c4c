"""Parts of bench_desktop.py: what many clients on one machine cost."""
