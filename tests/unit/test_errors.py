import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import autoquant
from autoquant import errors


def test_every_error_is_one_that_the_command_tells_the_user() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.AutoquantError)


def test_every_class_of_the_module_is_public() -> None:
    classes = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert classes == set(errors.__all__)


OF_THE_COMMAND = ("cli", "api/spelling.py", "inspection/text.py")
"""What reads options and prints."""


def sentences(path: Path) -> Iterator[str]:
    """Texts of a module, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.value


def test_what_a_caller_in_python_may_be_told_names_no_option_of_the_command() -> None:
    root = Path(autoquant.__file__).parent
    paths = [path for path in root.rglob("*.py") if not path.relative_to(root).as_posix().startswith(OF_THE_COMMAND)]
    found = {path.name: text for path in paths for text in sentences(path) if re.search(r"(?<![\w-])--[a-z]", text)}
    assert {name: text for name, text in found.items() if "autoquant regions MODEL --json" not in text} == {}


def test_the_base_is_public_in_the_package() -> None:
    assert autoquant.AutoquantError is errors.AutoquantError
