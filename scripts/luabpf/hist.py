# SPDX-License-Identifier: Apache-2.0
"""Histograms: the text of BCC's print_log2_hist, and percentiles.

Knows nothing of BPF; slots are plain lists of counts.
"""

from typing import List, Sequence

_STARS = 40
_FINE_BITS = 3  # LB_GC_FINE_BITS of lb_wire.h


def _stars(value: int, most: int) -> str:
    count = min(_STARS, _STARS * value // most) if most else 0
    return "*" * count + " " * (_STARS - count)


def log2_lines(slots: Sequence[int], unit: str) -> List[str]:
    """Lines of a histogram; slot N counts 2^N to 2^(N+1)-1, slot 0 also 0.

    UNIT is the plural name, "usecs". Without counts there are no lines.
    """
    used = [n for n, count in enumerate(slots) if count]
    if not used:
        return []
    wide = used[-1] >= 32
    width = 20 if wide else 10
    lines = [(" " * (15 if wide else 5)) + f"{unit:<{29 if wide else 19}} : "
             "count     distribution"]
    most = max(slots)
    for n in range(used[-1] + 1):
        low = 1 << n if n else 0
        lines.append(f"{low:>{width}} -> {(2 << n) - 1:<{width}} : "
                     f"{slots[n]:<8} |{_stars(slots[n], most)}|")
    return lines


def fine_bounds(slot: int) -> Sequence[int]:
    """Lowest value of a fine slot and of the one behind it."""
    if slot < 1 << _FINE_BITS:
        return slot, slot + 1
    power = (slot >> _FINE_BITS) + _FINE_BITS - 1
    part = slot & ((1 << _FINE_BITS) - 1)
    width = 1 << (power - _FINE_BITS)
    low = (1 << power) + part * width
    return low, low + width


def percentile(fine: Sequence[int], percent: float, most: int) -> float:
    """The value that PERCENT of all are at or below, MOST at most.

    Inside a slot the counts are taken as spread evenly, so the result is off
    by an eighth at most. 0 when nothing was counted.
    """
    total = sum(fine)
    if not total:
        return 0.0
    wanted = total * percent / 100
    seen = 0
    for slot, count in enumerate(fine):
        if count and seen + count >= wanted:
            low, high = fine_bounds(slot)
            return min(low + (high - low) * (wanted - seen) / count,
                       float(most))
        seen += count
    return float(most)
