"""Quotas: how many calls a person may make in a time and at once, and a group's people together.

They are counted in the process that lets a call through. Of several on one store each lets an equal share through, as
of every other limit; what was counted ends with the process.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple, Self

from smart_mcp_proxy.policy.limits import TokenBucket, share_of_count
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.settings.addresses import QUOTA_TIMES_S

PEOPLE_REMEMBERED: Final = 16_384
"""Whose groups are known; whoever calls is noted anew each minute."""


class Quota(NamedTuple):
    """Calls in a time, such as `500/day`: so many at once, and they come back evenly over that time.

    Attributes:
        calls: The number.
        time: One of `QUOTA_TIMES_S`.
    """

    calls: int
    time: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The quota that a setting says."""
        calls, _, time = text.partition("/")
        return cls(int(calls), time)

    def rate(self, gateways: int) -> tuple[float, int]:
        """Calls a second and calls at once of one of so many gateways."""
        calls = share_of_count(self.calls, gateways)
        return calls / QUOTA_TIMES_S[self.time], calls


class CountedQuota:
    """Quota of one person or one group, with what was used of it.

    Attributes:
        group: Whose; empty for a person.
        quota: In all.
        bucket: This gateway's share.
    """

    __slots__ = ("bucket", "group", "quota")

    def __init__(self, quota: Quota, group: str, gateways: int) -> None:
        self.quota = quota
        self.group = group
        self.bucket = TokenBucket(*quota.rate(gateways))


class Quotas:
    """Counted quotas of a process.

    Args:
        person: Of each person; None for no limit.
        groups: By group, for its people together.
        most: Whose counts are kept; beyond it those that are full again are dropped.
        at_once: Calls of one person at the same time; 0 is no limit.

    Attributes:
        find_person: Returns whose calls a principal's are: a token's count for the person who made it.
    """

    def __init__(self, person: Quota | None, groups: Mapping[str, Quota], most: int, at_once: int = 0) -> None:
        self.find_person: Callable[[str], str] = lambda principal: principal
        self._person = person
        self._groups = groups
        self._most = most
        self._gateways = 1
        self._people: dict[str, CountedQuota] = {}
        self._of_groups = {name: CountedQuota(quota, name, 1) for name, quota in groups.items()}
        self._groups_of: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._at_once = at_once
        self._under_way: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<Quotas of {len(self._people)} people and {len(self._of_groups)} groups>"

    def note_groups(self, person: str, groups: Collection[str]) -> None:
        """Note in which groups a person is, as their token says it."""
        self._groups_of[person] = tuple(name for name in self._groups if name in groups)
        self._groups_of.move_to_end(person)
        if len(self._groups_of) > PEOPLE_REMEMBERED:
            self._groups_of.popitem(last=False)

    def divide(self, gateways: int, now_s: float) -> None:
        """Keep the share of one of so many gateways; what was used stays used."""
        self._gateways = gateways  # of calls at once, too
        for counted in (*self._people.values(), *self._of_groups.values()):
            counted.bucket.change(*counted.quota.rate(gateways), now_s)

    def find_crowd(self, principal: str) -> int:
        """Return how many calls a principal's person may have at once, if there are so many; else 0."""
        most = share_of_count(self._at_once, self._gateways)
        return most if most and self._under_way[self.find_person(principal)] >= most else 0

    def enter(self, principal: str) -> str:
        """Count a call that begins; return for whom, so that it can `leave`."""
        person = self.find_person(principal)
        self._under_way[person] += 1
        return person

    def leave(self, person: str) -> None:
        """Count a call that has ended."""
        self._under_way[person] -= 1
        if not self._under_way[person]:
            del self._under_way[person]

    def find(self, principal: str, now_s: float) -> Iterator[CountedQuota]:
        """Yield the quotas that a call of a principal is counted against."""
        person = self.find_person(principal)
        if self._person is not None:
            counted = self._people.get(person)
            if counted is None:
                if len(self._people) >= self._most:
                    self._people = {name: one for name, one in self._people.items() if not one.bucket.is_full(now_s)}
                counted = self._people[person] = CountedQuota(self._person, "", self._gateways)
            yield counted
        yield from (self._of_groups[name] for name in self._groups_of.get(person, ()))


def open_quotas(settings: Settings, most: int) -> Quotas | None:
    """The quotas that the settings ask for; None where they ask for none."""
    groups = {}
    for text in settings.group_quotas:
        name, _, quota = text.rpartition("=")
        groups[name] = Quota.parse(quota)
    person = None if settings.person_quota is None else Quota.parse(settings.person_quota)
    at_once = settings.person_in_flight
    return Quotas(person, groups, most, at_once) if person is not None or groups or at_once else None
