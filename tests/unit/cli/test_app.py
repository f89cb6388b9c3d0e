import subprocess
import sys
from importlib.metadata import version

from typer.testing import CliRunner

from autoquant.cli import app

HEAVY = ("onnxruntime", "onnx", "optuna", "numpy", "pandas", "plotly")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['autoquant', '--help']\n"
        "from autoquant.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        f"print('loaded:', [name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert done.stdout.rstrip().endswith("loaded: []")


def test_without_arguments_the_help_is_shown() -> None:
    result = CliRunner().invoke(app, [])
    assert "search" in result.output
    assert "regions" in result.output


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"autoquant {version('autoquant')}\n")


def test_an_unknown_command_is_refused() -> None:
    assert CliRunner().invoke(app, ["serch"]).exit_code == 2
