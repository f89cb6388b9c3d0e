import pytest

from autoquant.domain.arguments import check_several, check_type
from autoquant.errors import UsageError


def test_what_is_of_a_wanted_type_passes() -> None:
    check_type("the number", 3, (int, float), "a number")
    check_several("numbers", (3, 4), int, "numbers")
    check_several("numbers", [], int, "numbers")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("abc", r"^names are one text, 'abc', give a list: \['abc'\]$"),
        (3, r"^names are of type 'int', give a list of names$"),
        (iter(["a"]), r"^names are of type 'list_iterator', give a list of names$"),
        ([b"a"], r"^one of the names is of type 'bytes', give a list of names$"),
    ],
)
def test_what_is_no_list_of_the_wanted_type_is_refused(values: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_several("names", values, str, "names")
