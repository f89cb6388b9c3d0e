"""The end of a run: the best of what was tried is measured once more, as files, and written with all that was found."""

from collections.abc import Callable, Mapping, Sequence

from autoquant.api import sentences, steps
from autoquant.api.deadline import LEAST_TRIAL_S, longest_seconds
from autoquant.api.delivery import Delivery
from autoquant.api.documents import write_reports
from autoquant.api.earlier import keep_unmatched, measured_before
from autoquant.api.finalists import Finalists
from autoquant.api.folder import RunFolder
from autoquant.api.refinement import refine_of
from autoquant.api.result import SearchResult
from autoquant.api.run import Opened, Run
from autoquant.api.setups import file_bench_setup
from autoquant.api.trials import Trials
from autoquant.domain.front import Front, RunRecord
from autoquant.domain.measurement import Believed, Evaluation
from autoquant.domain.objective import Bounds
from autoquant.runtime.environment import describe_environment
from autoquant.study.ledger import ledger_of
from autoquant.study.samplers import beliefs_of

__all__ = ["finish"]


def finish(
    run: Run,
    folder: RunFolder,
    opened: Opened,
    trials: Trials,
    evaluations: Sequence[Evaluation],
    *,
    bounds: Bounds,
    remark: Callable[[Front], Sequence[str]] = lambda _: (),
) -> SearchResult:
    """Measure the best of the evaluations once more, as files, and write what is delivered.

    Args:
        run: What was found out so far.
        folder: Where to.
        opened: What candidates are built from; its process ends.
        trials: Of the search.
        evaluations: Those that may be delivered.
        bounds: What is demanded of files.
        remark: Sentences for the user about the front.
    """
    opened.evaluator.close()
    run.notes.extend(f"trials: {sentence}" for sentence in trials.watch.sentences)
    n_before = min(run.interrupts.n_pressed, 1)

    def is_ended() -> bool:
        return run.interrupts.n_pressed > n_before

    with folder.new_models() as earlier:
        believed = {**beliefs_of(run.sampler), **measured_before(earlier)}
        delivery = _delivery(run, folder, opened, trials, bounds, believed, is_ended)
        with run.deadline.phase("finish"):
            front = delivery.deliver(evaluations, run.deadline)
        if is_ended():
            run.notes.append(sentences.MEASUREMENT_ENDED_BY_USER)
        run.notes.extend(sentences.slower_sentences(evaluations))
        run.notes.extend(sentences.limiting_sentences(front, evaluations))
        run.notes.extend(sentences.noisy_sentences(front))
        run.notes.extend(remark(front))
        run.notes.extend(keep_unmatched(earlier, front))
        record = _record(run, front, opened, trials)
        write_reports(folder, record, run.document(opened.ingredients, opened.facts, trials))
    return SearchResult(folder.path, record)


def _delivery(
    run: Run,
    folder: RunFolder,
    opened: Opened,
    trials: Trials,
    bounds: Bounds,
    believed: Mapping[int, Believed],
    is_ended: Callable[[], bool],
) -> Delivery:
    asked, data, facts, memory_bytes = run.configuration, run.checked.data, opened.facts, run.available_bytes
    division, asked_s = data.division(facts.n_samples), asked.budget.trial_seconds
    return Delivery(
        source=run.checked.source,
        prepared=opened.ingredients.prepared,
        finalists=_finalists(run, folder, opened, memory_bytes, is_ended),
        facts=facts,
        division=division,
        files=file_bench_setup(asked, data, division, facts.numbers),
        costs=facts.file_costs(len(division), opened.evaluator.opening_s),
        memory_bytes=memory_bytes,
        file_s=longest_seconds(trials.first_seconds) if asked_s is None else max(LEAST_TRIAL_S, asked_s),
        folder=folder,
        objectives=asked.objectives,
        bounds=bounds,
        believed=believed,
        is_ended=is_ended,
        tell=lambda phase: run.tell(phase, trials),
        notes=run.notes,
    )


def _finalists(
    run: Run, folder: RunFolder, opened: Opened, memory_bytes: int | None, is_ended: Callable[[], bool]
) -> Finalists:
    ingredients = opened.ingredients
    return Finalists(
        ingredients=ingredients,
        builder=ingredients.builder(run.rewrites),
        refine=refine_of(
            ingredients,
            run.checked.data.shortened(opened.facts.n_samples),
            run.deadline,
            rewrites=run.rewrites,
            memory_bytes=memory_bytes,
            cache_folder=run.configuration.cache or steps.user_cache(),
            is_ended=is_ended,
            notes=run.notes,
        ),
        folder=folder,
    )


def _record(run: Run, front: Front, opened: Opened, trials: Trials) -> RunRecord:
    float_us = {target.name: 1e3 * front.members[-1].latency[target.name].median_ms for target in front.targets}
    return RunRecord(
        front=front,
        regions=tuple(opened.ingredients.regions),
        evaluations=tuple(trials.study.as_told),
        environment=describe_environment(),
        configuration=run.configuration.plain(),
        phases=dict(run.deadline.phases),
        notes=tuple(run.notes),
        ledger=ledger_of(run.sampler, float_us),
        seconds_saved=trials.seconds_saved,
        n_earlier=run.n_learned_from,
    )
