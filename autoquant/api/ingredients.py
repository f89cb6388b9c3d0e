"""What candidates are built from."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from autoquant.api import steps
from autoquant.domain.accuracy import Form
from autoquant.domain.region import Assignment, Region
from autoquant.domain.rewrite import Rewrites
from autoquant.domain.scheme import Rounding, Scheme
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import Statistics
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.builder import Builder
from autoquant.qdq.own_errors import OwnErrors
from autoquant.qdq.twins import Twins
from autoquant.rewrites.filled import Filling
from autoquant.rounding.rounded import RoundedWeights
from autoquant.space.resolve import resolve
from autoquant.study.layout import Layout

__all__ = ["Ingredients"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """What candidates are built from.

    Attributes:
        prepared: The preprocessed model.
        regions: Its partition.
        statistics: Of its activations.
        definition: The space.
        form: Of the model.
        has_mean_biases: Whether biases are corrected where the space says nothing of them.
        rounder: Gives weights for schemes that do not round them to the nearest integers; None where there are none.
        own_errors: Of what each region quantizes; None where they are not known.
        twins: Schemes that quantize a region alike, ranges compared; None where these were not looked at.
        filling: How far channels are filled up; None where they are not.
    """

    prepared: PreparedModel
    regions: Sequence[Region]
    statistics: Statistics
    definition: SpaceDefinition
    form: Form = Form.PLAIN
    has_mean_biases: bool = False
    rounder: RoundedWeights | None = None
    own_errors: OwnErrors | None = None
    twins: Twins | None = None
    filling: Filling | None = None

    @property
    def plain_filling(self) -> dict[str, object] | None:
        """For files."""
        return None if self.filling is None else asdict(self.filling)

    def first_recipe(self) -> tuple[Scheme, Assignment] | None:
        """What quantizes everything with calibrated ranges and nearest integers; None where no scheme does."""
        space = resolve(self.definition, self.regions)
        for scheme in self.definition.schemes:
            if not scheme.is_dynamic and scheme.rounding is Rounding.NEAREST and space.uniform(scheme.name):
                return scheme, space.uniform(scheme.name)
        return None

    def builder(self, rewrites: Rewrites = frozenset()) -> Builder:
        """A new builder; ``rewrites`` are those that are used."""
        found = steps.builder_of(
            self.prepared, self.regions, self.statistics, space=self.definition, rounder=self.rounder
        )
        found.write(rewrites)
        return found

    def layout(self) -> Layout:
        """Regions, schemes and borders as the study sees them."""
        return steps.layout_of(self.prepared, self.regions, self.definition, self.known_twins(), self.own_errors)

    def known_twins(self) -> Twins:
        """Schemes that quantize a region alike, as far as that is known."""
        return steps.twins_of(self.prepared, self.regions, self.definition) if self.twins is None else self.twins
