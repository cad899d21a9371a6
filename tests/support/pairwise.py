"""Few combinations of many axes, such that any two values of two axes meet in one of them."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

Pair = tuple[tuple[int, Any], tuple[int, Any]]


def pairwise(axes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Greedy: each combination begins with a pair that has not met, and takes on every other axis
    the value that brings most new pairs."""
    missing = {
        pair
        for (i, first), (j, second) in combinations(enumerate(axes), 2)
        for pair in product([(i, value) for value in first], [(j, value) for value in second])
    }
    found = []
    while missing:
        chosen = dict(min(missing, key=repr))
        for i, values in enumerate(axes):
            if i not in chosen:
                chosen[i] = max(values, key=lambda value, i=i: _num_new(i, value, chosen, missing))
        combination = tuple(chosen[i] for i in range(len(axes)))
        missing -= set(pairs_of(combination))
        found.append(combination)
    return found


def pairs_of(combination: Sequence[Any]) -> list[Pair]:
    return list(combinations(enumerate(combination), 2))


def _num_new(i: int, value: Any, chosen: dict[int, Any], missing: set[Pair]) -> int:
    met = [tuple(sorted(((i, value), (j, other)))) for j, other in chosen.items()]
    return sum(pair in missing for pair in met)
