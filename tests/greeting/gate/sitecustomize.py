"""Holds a Python process up when it begins to import the module that GATE_AT names, until the file GATE is there.

What is imported so far is written to GATE.modules, which is how a test knows that the process stands there.
"""

import os
import sys
import time


class Gate:
    """Asked first for every module."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Finds nothing; waits before the module."""
        gate = os.environ["GATE"]
        if name == os.environ["GATE_AT"] and not os.path.exists(gate):
            with open(f"{gate}.{os.getpid()}", "w") as file:
                file.write("\n".join(sys.modules))
            os.replace(f"{gate}.{os.getpid()}", f"{gate}.modules")
            while not os.path.exists(gate):
                time.sleep(0.01)


if "GATE_AT" in os.environ:
    sys.meta_path.insert(0, Gate())  # type: ignore[arg-type]  # it is asked for find_spec alone
