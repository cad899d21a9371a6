"""What TLS costs a KV transfer: speed and CPU time, over plain text, TLS and mutual TLS.

    python deploy/measure_tls.py [--repetitions 9] [--mib 256] [--mode auto] [--json]

Two processes on loopback: this one sends with ``KvSender``, a child receives with ``KvReceiver``,
both into and out of a bytearray. One transfer at a time over connections that stay open; the three
kinds are shuffled within each repetition, and a first repetition warms up and is not counted.
Time runs from the first page to the acknowledged commit; CPU time is that of each whole process in
between. Loopback without a model: this is what TLS itself costs, not what a slow link hides.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import uvloop
from tls_ends import KINDS, LAYOUT, Receiving, Sample, Sending

from kvtransfer.limits import MODES


def medians(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """{kind: {field: median}}, and the range of the rates."""
    table = {}
    for kind in KINDS:
        rows = [asdict(sample) for sample in samples if sample.kind == kind]
        numbers = {field: [row[field] for row in rows] for field in rows[0] if field != "kind"}
        table[kind] = {field: statistics.median(values) for field, values in numbers.items()}
        rates = numbers["gbit_per_s"]
        table[kind] |= {"gbit_per_s_min": min(rates), "gbit_per_s_max": max(rates)}
    return table


def as_text(table: dict[str, dict[str, float]]) -> str:
    lines = [
        "| channel | Gbit/s, median (range) | of plain | CPU s/GB, sender | receiver |",
        "|---|---|---|---|---|",
    ]
    for kind, row in table.items():
        share = row["gbit_per_s"] / table["plain"]["gbit_per_s"]
        lines.append(
            f"| {kind} | {row['gbit_per_s']:.2f} ({row['gbit_per_s_min']:.2f} to"
            f" {row['gbit_per_s_max']:.2f}) | {share:.2f} | {row['sender_cpu_s_per_gb']:.2f} |"
            f" {row['receiver_cpu_s_per_gb']:.2f} |"
        )
    return "\n".join(lines)


def make_certificates(directory: Path) -> None:
    script = Path(__file__).with_name("make_certs.sh")
    subprocess.run([script, directory, "host", "127.0.0.1"], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=9, help="of each kind (default: 9)")
    parser.add_argument("--mib", type=int, default=256, help="MiB per transfer (default: 256)")
    parser.add_argument("--mode", choices=MODES, default="auto")
    parser.add_argument("--json", action="store_true", help="print samples and medians as JSON")
    parser.add_argument("--receive", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--pages", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if arguments.receive is not None:
            runner.run(Receiving(arguments.pages).run(arguments.receive))
            return
        num_pages = max(1, arguments.mib * 2**20 // LAYOUT.page_bytes)
        with tempfile.TemporaryDirectory() as directory:
            make_certificates(Path(directory))
            sending = Sending(num_pages, arguments.mode)
            samples = runner.run(sending.run(Path(directory), max(1, arguments.repetitions)))
    table = medians(samples)
    if arguments.json:
        print(json.dumps({"medians": table, "samples": [asdict(sample) for sample in samples]}))
    else:
        print(as_text(table))


if __name__ == "__main__":
    main()
