"""Space files: TOML to a checked definition."""

import hashlib
import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)

from autoquant.domain.accuracy import Accuracy
from autoquant.domain.arguments import check_type
from autoquant.domain.mistakes import Location, did_you_mean, first_mistake, key_of, unknown
from autoquant.domain.scheme import (
    FLOAT,
    BiasCorrection,
    DType,
    Granularity,
    Operators,
    RangeKind,
    RangeMethod,
    Rounding,
    Scheme,
    TensorFormat,
)
from autoquant.domain.space import QUANTIZABLE_OP_TYPES, Group, SpaceDefinition, SpaceRule
from autoquant.errors import SpaceError

__all__ = ["read_space"]

_Values = TypeVar("_Values", bound=Container[object])


def read_space(name_or_path: str | os.PathLike[str], *, ep: str, accuracy: Accuracy | None = None) -> SpaceDefinition:
    """Read and check a search space.

    Args:
        name_or_path: A shipped one by name, e.g. ``"default"``, or the path of a ``.toml`` file.
        ep: Short name of the execution provider, e.g. ``"cpu"``.
        accuracy: What is done for accuracy; what the file says by default.

    Raises:
        SpaceError: There is no such space, it is no valid space file, or it has no section for ``ep``.
        UsageError: It is neither a name nor a path.
    """
    path = _find(name_or_path)
    try:
        file = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise SpaceError(f"{path}, {first_mistake(error, _table_at)}") from error
    except (OSError, ValueError) as error:
        raise SpaceError(f"{path}: it cannot be read as TOML, put it right: {error}") from error
    for key, problem in _broken_references(file):
        raise SpaceError(f"{path}, {key}: {problem}")
    if ep not in file.ep:
        raise SpaceError(f"{path}, ep: has no section for '{ep}', it has: {', '.join(file.ep)}; add [ep.{ep}]")
    return _define(path.stem, file, file.ep[ep], file.accuracy if accuracy is None else accuracy)


def _find(name_or_path: str | os.PathLike[str]) -> Path:
    check_type("the search space", name_or_path, (str, os.PathLike), "the name of one or the path of a .toml file")
    path = Path(name_or_path)
    if path.suffix == ".toml" and os.path.exists(path):  # that of Path raises where a name is too long
        return path
    shipped = {file.stem: file for folder in _shipped_folders() for file in sorted(folder.glob("*.toml"))}
    if name_or_path in shipped:
        return shipped[name_or_path]
    known = f"those that are shipped have the names {', '.join(shipped)}"
    is_other = path.suffix != ".toml" and os.path.isfile(path)
    problem = f"a search space file is a .toml, {known}" if is_other else f"no search space file has this path, {known}"
    raise SpaceError(f"{name_or_path}: {problem}{did_you_mean(path.stem, shipped)}")


def _shipped_folders() -> tuple[Path, Path]:
    package = Path(__file__).parents[1]
    return package / "search_spaces", package.parent / "search_spaces"  # of a wheel, of a checkout


def _define(name: str, file: "_File", section: "_Section", accuracy: Accuracy) -> SpaceDefinition:
    schemes = tuple(file.schemes[scheme].named(scheme, accuracy) for scheme in section.schemes)
    rules = [
        SpaceRule(op_types=frozenset(rule.op_types), nodes=rule.nodes, schemes=tuple(rule.schemes))
        for rule in file.rules
    ]
    content = [
        [{item.name: str(getattr(scheme, item.name)) for item in fields(Scheme)} for scheme in schemes],
        sorted(section.op_types),
        [dict(rule) for rule in file.rules],
        [dict(group) for group in file.groups],
        accuracy,
    ]
    return SpaceDefinition(
        name=name,
        schemes=schemes,
        op_types=frozenset(section.op_types),
        rules=tuple(rules),
        groups=tuple(Group(name=group.name, nodes=group.nodes) for group in file.groups),
        accuracy=accuracy,
        digest=hashlib.sha256(json.dumps(content).encode()).hexdigest(),
        open_biases=frozenset(scheme for scheme in section.schemes if file.schemes[scheme].bias is None),
    )


def _not_float(values: _Values) -> _Values:
    if FLOAT in values:
        raise ValueError(f"'{FLOAT}' is the model as it is and always allowed, leave it out")
    return values


def _filled(values: list[str]) -> list[str]:
    if not values:
        raise ValueError("is empty, name at least one")
    return values


def _distinct(values: list[str]) -> list[str]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"'{value}' is listed twice, leave one out")
    return values


def _known_op_types(values: list[str]) -> list[str]:
    for value in values:
        if value not in QUANTIZABLE_OP_TYPES:
            raise ValueError(unknown(value, QUANTIZABLE_OP_TYPES))
    return values


def _regular_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"'{text}' is no regular expression, put it right: {error}") from error
    return text


def _activation_format(value: object) -> TensorFormat:
    tensor_format = TensorFormat.parse(str(value))
    if tensor_format.granularity is Granularity.CHANNEL:
        raise ValueError(f"'{value}' is per-channel, activations are per-tensor, write e.g. 'u8:tensor:asym'")
    if tensor_format.unsaturated:
        raise ValueError(f"'{value}' says how weights are scaled, leave out ':unsaturated'")
    if tensor_format.dtype is DType.S4:
        raise ValueError(f"'{value}': 4 bits are for weights alone, write e.g. 's8:block-32:sym'")
    return tensor_format


def _weight_format(value: object) -> TensorFormat:
    tensor_format = TensorFormat.parse(str(value))
    if tensor_format.granularity is Granularity.CHANNEL and not tensor_format.symmetric:
        raise ValueError(f"'{value}' is asymmetric, per-channel weights must be symmetric, write e.g. 's8:channel:sym'")
    if tensor_format.unsaturated and tensor_format.dtype is not DType.S8:
        raise ValueError(f"'{value}': products of other types than s8 do not saturate, leave out ':unsaturated'")
    if tensor_format.dtype is DType.S4 and not tensor_format.block:
        raise ValueError(f"'{value}': kernels for weights of 4 bits take blocks, write e.g. 's4:block-32:sym'")
    if tensor_format.unsaturated and tensor_format.block:
        raise ValueError(f"'{value}': blocks keep their scales on every processor, leave out ':unsaturated'")
    if tensor_format.unsaturated and not tensor_format.symmetric:
        raise ValueError(f"'{value}': zero points take part in what saturates, write e.g. 's8:tensor:sym:unsaturated'")
    return tensor_format


def _range_method(value: object) -> RangeMethod:
    return RangeMethod.parse(str(value))


_Names = Annotated[list[str], AfterValidator(_filled), AfterValidator(_distinct)]
_OpTypes = Annotated[_Names, AfterValidator(_known_op_types)]
_Pattern = Annotated[str, AfterValidator(_regular_expression)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Section(_Table):
    schemes: Annotated[_Names, AfterValidator(_not_float)]
    op_types: _OpTypes


class _Scheme(_Table):
    activation: Annotated[TensorFormat, PlainValidator(_activation_format)]
    weight: Annotated[TensorFormat, PlainValidator(_weight_format)]
    ranges: Annotated[RangeMethod, PlainValidator(_range_method)]
    operators: Operators = Operators.ALL
    bias: BiasCorrection | None = None
    rounding: Rounding = Rounding.NEAREST

    @property
    def is_dynamic(self) -> bool:
        return self.ranges.kind is RangeKind.DYNAMIC

    @model_validator(mode="after")
    def _is_as_kernels_are(self) -> Self:
        problem = _dynamic_problem(self) if self.is_dynamic else None
        if problem is not None:
            raise ValueError(f"ranges = 'dynamic' {problem}")
        blocks = [item for item in (self.activation, self.weight) if item.block]
        if blocks and not self.is_dynamic:
            raise ValueError(f"'{blocks[0]}' goes with ranges = 'dynamic' alone, write e.g. 's8:tensor:sym'")
        if self.rounding is Rounding.ADAQUANT and self.bias is BiasCorrection.NONE:
            raise ValueError("rounding = 'adaquant' learns biases with the scales, leave out bias = 'none'")
        self.named("", Accuracy.NONE)  # raises for what no scheme can be
        return self

    def named(self, name: str, accuracy: Accuracy) -> Scheme:
        """With what the level of accuracy gives where the file says nothing."""
        has_none = self.is_dynamic or accuracy is Accuracy.NONE
        bias = BiasCorrection.NONE if has_none else BiasCorrection.MEAN
        return Scheme(name=name, **{**dict(self), "bias": self.bias or bias})


def _dynamic_problem(scheme: _Scheme) -> str | None:
    """What has no kernel, or no meaning, where ranges are those of each input."""
    blocks = TensorFormat(
        dtype=DType.S8,
        granularity=Granularity.BLOCK,
        symmetric=True,
        block=scheme.weight.block or scheme.activation.block,
    )
    coarse = replace(blocks, dtype=DType.S4)
    if blocks.block and not (scheme.activation == blocks and scheme.weight in (blocks, coarse)):
        return f"takes blocks of activations and weights alike, write '{blocks}' for both, or '{coarse}' for weights"
    if not blocks.block and scheme.activation != TensorFormat(dtype=DType.U8):
        return f"goes with 'u8:tensor:asym' alone, activation is '{scheme.activation}'"
    if not blocks.block and scheme.weight.dtype.bits != 8:
        return f"goes with weights of 8 bits, weight is '{scheme.weight}', write e.g. 's8:channel:sym'"
    if scheme.operators is not Operators.ALL:
        return f"quantizes linear operators and LSTM in any case, leave out operators = '{scheme.operators}'"
    if scheme.bias is BiasCorrection.MEAN:
        return "leaves biases in float as they are, leave out bias = 'mean'"
    if scheme.rounding not in (Rounding.NEAREST, Rounding.GPTQ):
        return f"goes with the nearest integers or with 'gptq', not with rounding = '{scheme.rounding}'"
    return None


class _Rule(_Table):
    op_types: _OpTypes = Field(default_factory=list)
    nodes: _Pattern | None = None
    schemes: _Names

    @model_validator(mode="after")
    def _selects(self) -> Self:
        if not self.op_types and self.nodes is None:
            raise ValueError("says neither op_types nor nodes, add one of them")
        return self


class _Group(_Table):
    name: Annotated[str, Field(min_length=1)]
    nodes: _Pattern


class _File(_Table):
    version: Literal[1] = Field(alias="schema")
    description: str = ""
    accuracy: Accuracy = Accuracy.FAST
    ep: dict[str, _Section] = Field(min_length=1)
    schemes: Annotated[dict[str, _Scheme], Field(min_length=1), AfterValidator(_not_float)]
    rules: list[_Rule] = Field(default_factory=list)
    groups: list[_Group] = Field(default_factory=list)


_TABLES: Mapping[object, type[_Table]] = {"ep": _Section, "schemes": _Scheme, "rules": _Rule, "groups": _Group}


def _table_at(location: Location) -> type[_Table]:
    return _File if len(location) == 1 else _TABLES[location[0]]


def _broken_references(file: _File) -> Iterator[tuple[str, str]]:
    """Keys and what is wrong with them, in what no table shows by itself."""
    sections = [(key_of(("ep", ep, "schemes")), section.schemes, {*file.schemes}) for ep, section in file.ep.items()]
    rules = [(f"rules[{index}].schemes", rule.schemes, {FLOAT, *file.schemes}) for index, rule in enumerate(file.rules)]
    for key, names, known in sections + rules:
        yield from ((key, unknown(name, known)) for name in names if name not in known)
    listed = {name for section in file.ep.values() for name in section.schemes}
    for name in file.schemes:
        if name not in listed:
            yield key_of(("schemes", name)), "no section of ep lists it, add it to the schemes of one or leave it out"
    for name, n_times in Counter(group.name for group in file.groups).items():
        if n_times > 1:
            yield "groups", f"'{name}' is the name of {n_times} groups, give each its own"
