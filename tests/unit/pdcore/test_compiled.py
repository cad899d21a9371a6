"""Compiled once for each version of the source, kept in the cache, one clear line when it fails."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pdcore.compiled import Recipe, compiled
from pdcore.errors import ConfigError

PROGRAM = "int main(void) { return 7; }"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setenv("PDSPAN_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    return Recipe("tools/program", (source,), ("cc",), ("-O1",), (), "this test")


def test_the_result_runs_and_is_kept(recipe: Recipe) -> None:
    program = compiled(recipe)
    assert subprocess.run([program], check=False).returncode == 7
    made = program.stat().st_mtime_ns
    assert compiled(recipe) == program
    assert program.stat().st_mtime_ns == made
    assert list(program.parent.iterdir()) == [program]


def test_another_source_machine_or_option_is_another_result(recipe: Recipe) -> None:
    programs = {compiled(recipe)}
    programs.add(compiled(replace(recipe, machine="another")))
    programs.add(compiled(replace(recipe, options=("-O2",))))
    recipe.sources[0].write_text(PROGRAM.replace("7", "8"))
    programs.add(compiled(recipe))
    assert len(programs) == 4


def test_no_compiler_is_one_clear_line(recipe: Recipe) -> None:
    with pytest.raises(ConfigError, match=r"^this test needs a C compiler \(cxx9\) once, and"):
        compiled(replace(recipe, compilers=("cxx9",)))


def test_what_the_compiler_says_is_told(recipe: Recipe) -> None:
    recipe.sources[0].write_text("int main(void) { return nothing; }")
    with pytest.raises(ConfigError, match=r"this test: .*cc failed: .*error: .*nothing"):
        compiled(recipe)
    assert not list((recipe.sources[0].parent / "cache" / "tools").iterdir())


def test_a_cache_that_cannot_be_written_is_one_clear_line(recipe: Recipe) -> None:
    (recipe.sources[0].parent / "cache").write_text("a file")
    with pytest.raises(
        ConfigError, match=r"^this test: cannot write .*cache/tools: .*PDSPAN_CACHE"
    ):
        compiled(recipe)
