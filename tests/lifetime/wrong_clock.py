"""The gateway on a machine whose clock is wrong. Run as the command line is, with `AHEAD_S` among the globals."""

import time

told, told_ns = time.time, time.time_ns

if __name__ == "__main__":
    wrong_s: int = globals()["AHEAD_S"]
    time.time = lambda: told() + wrong_s
    time.time_ns = lambda: told_ns() + wrong_s * 1_000_000_000
    from smart_mcp_proxy.cli import main

    main()
