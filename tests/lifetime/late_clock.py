"""The gateway on a machine whose clock is an hour behind. Run as the command line is."""

import time

LATE_S = 3600.0
told = time.time

if __name__ == "__main__":
    time.time = lambda: told() - LATE_S
    from smart_mcp_proxy.cli import main

    main()
