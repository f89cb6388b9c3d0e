"""The structure sampler, made from what the steps give."""

from collections.abc import Mapping, Sequence

from autoquant.api import steps
from autoquant.api.configuration import Demands, check_seed
from autoquant.api.steps.models import check_prepared_type
from autoquant.domain.arguments import check_several, check_type
from autoquant.domain.region import Region, RegionId
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import Statistics
from autoquant.domain.warning import warn_caller
from autoquant.errors import UsageError
from autoquant.model.prepared import PreparedModel
from autoquant.study import sampler
from autoquant.study.standing import Interest

__all__ = ["StructureSampler"]


class StructureSampler(sampler.StructureSampler):
    """An Optuna sampler that knows which regions touch: noise power adds up over them, latency over their borders too.

    It is for studies of your own, one sampler for each; ``autoquant.search`` makes its own, and one that is given to it
    proposes for the demands and objectives of the search. The parameters of a trial are the regions, each a categorical
    over ``choices``; other parameters are sampled at random. The values are the SNR in dB, maximised, and the latency
    ratio on each target, minimised, in this order, unless the user attributes ``snr_db`` and ``ratios`` (a list) of
    every trial say them. Further user attributes make the predictions better:

    - ``effective``: the scheme that each region really ran;
    - ``ratio_error``: standard error of the ratio, with several targets a list of one for each;
    - ``snr_error_db``: what the samples leave open of the SNR, a standard deviation in dB;
    - ``snr_by_output``: list of the SNRs of all outputs, in dB;
    - ``size_bytes``: what the file takes, where its size matters, 0 where that is unknown;
    - ``state``: ``"rejected-early"`` where the values are rough, ``"untimed"`` where only the SNR was wanted so far;
      ``"failed"`` of a trial that fails where it is the assignment that did: without it, as where Ctrl-C ended the
      trial, less of it is blamed; ``"complete"`` changes nothing.

    A trial that is pruned may say ``snr_db`` too; without ``ratios`` it teaches noise alone.

    Demands on metrics are told as constraints, ``trial.set_constraint(name, beyond)`` with a positive number where one
    is broken: proposals keep to SNRs at which they are likely to be kept. Of ``snr_db``, ``latency_ratio`` and
    ``size_bytes`` more is known: say them with ``min_snr_db=``, ``max_latency_ratio=`` and ``max_size_bytes=``, beside
    which constraints of these names are passed over.

    Equal seeds and trials give equal proposals. Trials that failed or were pruned are not proposed again, but
    those that are ``"untimed"``. Where nothing new is left, trials repeat, and a warning says so.

    Args:
        prepared: What ``autoquant.prepare`` gave.
        regions: What ``autoquant.find_regions`` gave, at least one.
        statistics: What ``autoquant.calibrate`` gave: errors of what regions quantize make predictions of noise better.
        space: That they were found for.
        ep: Execution provider whose section of the space counts.
        seed: Of draws and moves; None for other ones each time.
        min_snr_db: Lowest SNR of interest.
        max_latency_ratio: Highest ratio of interest.
        max_size_bytes: Largest file of interest.
        has_size: Whether smaller files count as much as a lower ratio.

    Raises:
        ModelError: No scheme of the space can be written at the opset of the model.
        SpaceError: The space cannot be read.
        UsageError: There is no region, or regions or statistics are of another model or space; or, when a proposal is
            asked for, the study has other directions and a trial does not say its SNR and ratios, or what it says is no
            ratio, not an error for each, or cannot be read; a demand or the seed is out of its range.
    """

    def __init__(
        self,
        prepared: PreparedModel,
        regions: Sequence[Region],
        *,
        statistics: Statistics | None = None,
        space: str | SpaceDefinition = "default",
        ep: str = "cpu",
        seed: int | None = 0,
        min_snr_db: float | None = None,
        max_latency_ratio: float | None = None,
        max_size_bytes: int | None = None,
        has_size: bool = False,
    ) -> None:
        Demands(min_snr_db=min_snr_db, max_latency_ratio=max_latency_ratio, max_size_bytes=max_size_bytes)  # checks
        check_type("has_size", has_size, bool, "True or False")
        if seed is not None:
            check_seed(seed)
        self._has_repeated = False
        if not regions:
            raise UsageError("there is no region that a sampler could propose a scheme for; leave the model float")
        check_prepared_type(prepared)
        check_several("regions", regions, Region, "what find_regions(prepared) gives")
        _refuse_others(prepared, regions)
        definition = steps.expressible(steps.definition_of(space, ep), prepared)
        planner = own_errors = None
        if statistics is not None:
            check_type("what was calibrated", statistics, Statistics, "what calibrate(prepared, samples) gives")
            planner = steps.planner_of(prepared, statistics, definition)
            own_errors = steps.own_errors(planner, regions, statistics, definition)
        twins = steps.twins_of(prepared, regions, definition, planner)
        layout = steps.layout_of(prepared, regions, definition, twins, own_errors)
        interest = Interest(
            min_snr_db=min_snr_db, max_ratio=max_latency_ratio, max_size_bytes=max_size_bytes, has_size=has_size
        )
        super().__init__(layout, interest, seed=seed)

    def repeats(self) -> None:
        """Warn once: what is proposed runs as an earlier trial did."""
        if not self._has_repeated:
            self._has_repeated = True
            warn_caller(
                "StructureSampler repeats itself, as every other assignment was proposed already or runs as one that"
                " was; end the study"
            )

    @property
    def choices(self) -> Mapping[RegionId, tuple[str, ...]]:
        """Names of the schemes that each region may take, float first."""
        return self._layout.choices


def _refuse_others(prepared: PreparedModel, regions: Sequence[Region]) -> None:
    """Regions of another model."""
    names = {node.name for node in prepared.graph.nodes}
    for region in regions:
        for node in region.nodes:
            if node not in names:
                raise UsageError(
                    f"region '{region.id}' is of another model, as here is no node '{node}'; find them anew"
                )
