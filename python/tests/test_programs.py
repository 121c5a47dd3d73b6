"""The command `stretto`."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import stretto
from stretto._library import programs

COMMAND = [sys.executable, "-m", "stretto._programs"]


def run(*arguments, folder=None):
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(stretto.__file__).parents[1])}
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, cwd=folder, env=environment
    )


def test_programs_are_those_of_the_source():
    folder = pathlib.Path(__file__).parents[2] / "examples/programs"
    names = [path.stem.replace("stretto-", "").replace("_", "-") for path in folder.glob("*.cpp")]
    assert sorted(programs) == sorted(names)


def test_usage():
    for arguments in [(), ("--help",)]:
        result = run(*arguments)
        assert result.returncode == 0 and ", ".join(programs) in result.stdout
    assert run("--version").stdout == f"stretto {stretto.__version__}\n"
    result = run("sing")
    assert result.returncode == 2 and "train-music" in result.stderr


@pytest.mark.parametrize("name", programs)
def test_help_and_errors(name):
    result = run(name, "--help")
    assert result.returncode == 0 and "--help" in result.stdout
    result = run(name, "--no-such-option")
    assert result.returncode == 2 and result.stderr.startswith(f"stretto {name}: ")


def test_a_training(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat and saw a rat\n" * 200)
    options = ["--data", "text.txt", "--tokens", "bytes", "--steps", "3", "--out", "run"]
    options += ["--d-model", "16", "--layers", "1", "--heads", "2", "--length", "32", "--batch", "2"]
    result = run("train-lm", *options, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "validation" in result.stdout
    assert (tmp_path / "run/checkpoint.safetensors").exists()


def test_a_signal_ends_a_program(tmp_path):
    """Python's own handler of SIGINT would only run after the program."""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(stretto.__file__).parents[1])}
    options = ["train-chorales", "--steps", "1000000", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        [*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout.readline()  # the training has begun
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
