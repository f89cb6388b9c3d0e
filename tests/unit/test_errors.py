import inspect

import autoquant
from autoquant import errors


def test_every_error_is_one_that_the_command_tells_the_user() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.AutoquantError)


def test_every_class_of_the_module_is_public() -> None:
    classes = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert classes == set(errors.__all__)


def test_the_base_is_public_in_the_package() -> None:
    assert autoquant.AutoquantError is errors.AutoquantError
