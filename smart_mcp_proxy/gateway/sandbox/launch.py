"""Start a program with fewer rights; standard library only.

`python -I -S launch.py DATA_BYTES PROGRAM [ARGUMENT...]`

The limits are set here and not between fork and exec of the gateway, where a process with threads may hang.
"""

import os
import resource
import sys

_OPEN_FILES = 64
_NICENESS = 10
"""Scripts yield the processors to the gateway and to everyone else's calls."""


def main() -> None:
    """Takes away what the program does not need, then becomes it."""
    data_bytes, program = int(sys.argv[1]), sys.argv[2:]
    for kind, limit in (
        (resource.RLIMIT_DATA, data_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
    ):
        _, most = resource.getrlimit(kind)
        least = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (least, least))
    os.nice(_NICENESS)
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
