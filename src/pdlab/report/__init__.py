"""The report: one self-contained page on any number of records, its plots and tables beside it.

``write_report`` renders each record as a section (``section.py``): plots (``*_plot.py``,
``verdict_map.py``), tables, and what speaks against believing them. Statistics are those of
``pdlab.stats``; nothing is computed here that ``pdspan lab compare`` would compute otherwise.
"""

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, PackageLoader

from pdcore.version import __version__
from pdlab.record_files import write_whole
from pdlab.records import Record
from pdlab.report.section import Section, section_of
from pdlab.report.style import styled
from pdlab.report.tables import readable

TITLE = "KV transfer over distance"


def write_report(records: Mapping[str, Record], out: Path) -> Path:
    """Write ``index.html`` and its files into ``out``; the page's path. Raises PdspanError."""
    with styled():
        sections = [section_of(name, records[file]) for file, name in _names(records).items()]
    for section in sections:
        for picture in section.pictures:
            write_whole(out / f"{section.name}-{picture.name}.png", picture.png)
        for table in section.tables:
            write_whole(out / f"{section.name}-{table.name}.csv", table.to_csv())
    page = out / "index.html"
    write_whole(page, _page(sections).encode())
    return page


def _names(files: Mapping[str, Record]) -> dict[str, str]:
    """Sections are named for their files; the suffix stands only where it tells two apart."""
    stems = [Path(file).stem for file in files]
    return {
        file: stem if stems.count(stem) == 1 else file
        for file, stem in zip(files, stems, strict=True)
    }


def _page(sections: list[Section]) -> str:
    environment = Environment(loader=PackageLoader("pdlab.report", "."), autoescape=True)
    environment.filters |= {"data_uri": _data_uri, "readable": readable, "zip": zip}
    template = environment.get_template("page.html.j2")
    return template.render(title=TITLE, version=__version__, sections=sections)


def _data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{b64encode(png).decode()}"
