"""What runs in a tool's environment must not need ours."""

import ast
from pathlib import Path

import experiments

ROOT = Path(experiments.__file__).parent.parent


def imported_by(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def file_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_tools_import_nothing_of_autoquant_however_indirectly() -> None:
    tools = sorted((ROOT / "experiments" / "peers" / "tools").glob("*.py"))
    seen, left = set(tools), list(tools)
    while left:
        for module in imported_by(left.pop()):
            assert module.partition(".")[0] != "autoquant"
            if module.startswith("experiments.") and (file := file_of(module)) not in seen:
                seen.add(file)
                left.append(file)
    assert {"recipes.py", "remeasure.py", "manifest.py", "optuna_loop.py", "task.py"} <= {file.name for file in seen}
