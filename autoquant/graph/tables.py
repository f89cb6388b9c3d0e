"""What is computed of integers one by one, looked up."""

from autoquant.domain.target import Target
from autoquant.model.copies import Model, in_parts
from autoquant.rewrites.rows import RowFunction, Table, row_functions, with_tables
from autoquant.runtime.session import open_parts

__all__ = ["look_up_rows"]


def look_up_rows(model: Model) -> Model:
    """Gathers of tables in place of what is computed of each integer alone: decision 0049.

    The argument stays as it is, and is given back where there is nothing to do.

    Raises:
        ModelError: onnxruntime refuses a part of it.
    """
    return with_tables(model, [(function, _tables(function)) for function in row_functions(model)])


def _tables(function: RowFunction) -> list[Table]:
    session = open_parts(*in_parts(function.model), Target())
    return function.tables(lambda integers: session.run(None, {function.root: integers}))
