"""In which knobs two arms differ: an effect can be attributed only to a single one.

Named transfer modes are compared by the pairs that were made to differ in one knob; every other
pair of modes, and every pair with ``auto``, differs in several.
"""

from pdlab.records import ArmRecord

SEVERAL = "several knobs of the transfer mode"

ONE_KNOB: dict[frozenset[str], str] = {
    frozenset(("sequential_layer", "sequential")): "frame size",
    frozenset(("sequential", "bulk")): "frame size",
    frozenset(("sequential", "windowed")): "window",
    frozenset(("windowed", "coalesced")): "frame size",
    frozenset(("bulk", "coalesced")): "window",
    frozenset(("coalesced", "pipelined")): "overlap with prefill",
    frozenset(("pipelined", "striped")): "connections",
}


def knobs_between(a: ArmRecord, b: ArmRecord) -> tuple[str, ...]:
    """What differs, in words; nothing for an A/A comparison."""
    knobs = []
    if a.placement != b.placement:
        knobs.append("placement")
    elif a.mode != b.mode:
        knobs.append(ONE_KNOB.get(frozenset((a.mode or "", b.mode or "")), SEVERAL))
    settings_a, settings_b = a.settings or {}, b.settings or {}
    keys = sorted(settings_a.keys() | settings_b.keys())
    return (*knobs, *(key for key in keys if settings_a.get(key) != settings_b.get(key)))


def attributable(knobs: tuple[str, ...]) -> bool:
    return len(knobs) <= 1 and SEVERAL not in knobs
