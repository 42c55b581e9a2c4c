"""The crowd of a ranking: what its best hit has to stand out from."""

import math
from collections import Counter
from collections.abc import Hashable, Sequence

_PER_SERVER = 5
"""So many places before the crowd's may one server fill, or an even share of them where there are few servers: one that
floods the catalog does not make a crowd."""


def crowd_place(servers: Sequence[Hashable], crowd: int, count: int) -> int | None:
    """The place of a ranking that is the crowd's, from 0; None if the ranking does not reach it.

    Args:
        servers: Of the ranked tools, best first; None for a tool that is gone.
        crowd: Number of the tools that count, up to the one in the crowd's place; at least 1.
        count: Of all servers.
    """
    per_server = max(_PER_SERVER, math.ceil(crowd / max(1, count)))
    first = servers[:crowd]
    if len(first) == crowd and None not in first and max(Counter(first).values()) <= per_server:
        return crowd - 1
    taken: Counter[Hashable] = Counter()
    counted = 0
    for place, server in enumerate(servers):
        if server is not None and taken[server] < per_server:
            taken[server] += 1
            counted += 1
            if counted == crowd:
                return place
    return None
