"""Which objects of a class are alive, though the collector never looks."""

import gc
import sys
from collections.abc import Collection
from typing import Any, Final

_NO_SWITCH_S: Final = 60.0


def living(kinds: Collection[type]) -> list[Any]:
    """All objects whose class is among these.

    No other thread runs meanwhile: a tuple that it is just making can be made no further while a list of all objects
    refers to it (`SystemError`).
    """
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_NO_SWITCH_S)
    try:
        return [each for each in gc.get_objects() if type(each) in kinds]
    finally:
        sys.setswitchinterval(usual_s)
