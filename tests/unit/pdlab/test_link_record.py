"""Everything that a link was set to stands in its record, and tells conditions apart."""

from dataclasses import fields, replace

from pdlab.conditions import condition_of
from pdlab.link import LinkProfile, MeasuredLink, TcpSettings
from pdlab.link_record import link_record

MEASURED = MeasuredLink(
    kind="tun",
    profile=LinkProfile(rtt_s=0.05, rate_bps=1e9, loss=0.01, jitter_s=0.002, queue_bytes=30_000),
    tcp=TcpSettings("stock", "cubic", slow_start_after_idle=False, metrics_save=True),
    rtt_min_s=0.0501,
    rtt_median_s=0.0502,
    rate_bps=0.96e9,
    num_flows=4,
    num_bytes=10**8,
    num_round_trips=15,
    queue_bytes=30_000,
    limits=("a limit",),
)


def test_every_setting_of_link_and_tcp_is_recorded() -> None:
    record = link_record(MEASURED, "bbr")
    for settings in (MEASURED.profile, MEASURED.tcp):
        for field in fields(settings):
            assert getattr(record, field.name) == getattr(settings, field.name), field.name
    assert record.notes == ("a limit",)
    default = replace(MEASURED, tcp=TcpSettings())
    assert link_record(default, "bbr").congestion == "bbr"


def test_links_that_differ_in_a_setting_are_two_conditions() -> None:
    record = link_record(MEASURED, "bbr")
    for field in ("slow_start_after_idle", "metrics_save"):
        other = replace(record, **{field: not getattr(record, field)})
        assert condition_of(other, at_once=1) != condition_of(record, at_once=1)
        assert str(condition_of(other, at_once=1)) != str(condition_of(record, at_once=1))
