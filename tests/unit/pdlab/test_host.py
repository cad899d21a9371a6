import subprocess
from pathlib import Path

from pdlab.host import describe_commit, describe_host


def test_the_host_is_described_without_naming_it() -> None:
    host = describe_host()
    assert host.num_cores >= 1
    assert host.memory_bytes > 2**20
    assert host.versions["python"].count(".") == 2
    assert "grpcio" in host.versions
    assert f"{host.num_cores} cores" in str(host)


def test_code_outside_a_repository_has_no_commit(tmp_path: Path) -> None:
    assert describe_commit(tmp_path) == "unknown"


def test_another_repository_around_the_code_is_not_taken_for_ours(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True)

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "theirs")
    (tmp_path / "host.py").write_text("not tracked")
    assert describe_commit(tmp_path) == "unknown"

    (tmp_path / "src").mkdir()
    git("add", "host.py")
    git("commit", "--quiet", "--message", "now it is the code")
    clean = describe_commit(tmp_path)
    assert len(clean) == 40

    (tmp_path / "src" / "changed.py").write_text("x = 1\n")
    assert describe_commit(tmp_path) == f"{clean}-dirty"
