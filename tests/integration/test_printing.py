"""Where what is printed goes nowhere, or somebody else prints too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
COMMAND = [sys.executable, "-m", "autoquant"]


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["inspect", "example:digits", "--json"], ["regions", "example:digits"]])
def test_where_there_is_no_room_one_sentence_says_so(arguments: list[str]) -> None:
    with FULL.open("w") as out:
        found = subprocess.run([*COMMAND, *arguments], stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert found.stderr == "autoquant: there is no room for what is printed; make room, or print elsewhere\n"
    assert found.returncode == 2


def test_a_job_goes_on_where_nobody_reads(tmp_path: Path) -> None:
    models = "".join(f'[[models]]\nname = "m{i}"\nmodel = "{i}.onnx"\ncalibration = "c.npz"\n' for i in range(3))
    (tmp_path / "job.toml").write_text(f'schema = 1\nname = "gone"\n[defaults]\ntime = "20s"\n{models}')
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "experiment", "run", "job.toml"]
    found = subprocess.run(command, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    (summary,) = tmp_path.glob("reports/gone/*/summary.md")
    assert "it was not searched yet" not in summary.read_text(encoding="utf-8")
    assert (found.returncode, found.stderr) == (1, "")


def test_programs_of_a_data_source_do_not_print_into_json(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import os, subprocess\nimport numpy\n\n\ndef samples():\n    subprocess.run(['echo', 'decoding'])\n"
        "    os.chdir('/')\n    return [{'image': numpy.zeros((1, 1, 8, 8), 'f')}]\n"
    )
    arguments = ["regions", "example:digits", "--calibration", "loud:samples", "--json"]
    found = subprocess.run([*COMMAND, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["regions"]
    assert found.stderr == "decoding\n"
