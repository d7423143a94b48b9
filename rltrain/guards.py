"""When a run must not go on as if nothing were wrong, and what to tell the person about it.

Pure judgements over records; the loop acts on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .errors import RunStopped
from .metrics import StepRecord
from .rollout import Rollout

__all__ = ["check_policy_gap", "check_unscored", "hint", "is_server_away"]

_HINT_STEPS = 3

_AWAY = ("SessionLost", "ServerBusy")

_VERDICT_MEANINGS = {
    "AC": "programs pass, so max_reward or the reward settings may be wrong",
    "WA": "programs run and print wrong answers: the problems may be too hard for this model",
    "TLE": "programs run out of CPU time: raise cpu_limit_seconds, or the problems are too hard",
    "ILE": "programs wait for something: they may read more input than there is",
    "RE": "programs crash: read samples.jsonl for what they do",
    "CE": "programs do not compile: raise max_output_tokens if cut_share is high",
    "NC": "answers hold no program in a fenced block: raise max_output_tokens if cut_share is high",
    "MLE": "programs need more memory than memory_limit_bytes",
    "OLE": "programs print without end",
}


def is_server_away(rollouts: Sequence[Rollout], *, max_share: float) -> bool:
    """Whether so many rollouts were lost with their connections that waiting may help."""
    lost = sum(rollout.failure.startswith(_AWAY) for rollout in rollouts)
    return lost > max_share * len(rollouts)


def check_unscored(rollouts: Sequence[Rollout], *, max_share: float) -> None:
    """Stop where too few rollouts were scored for the step to mean anything.

    Raises:
        RunStopped: With the reasons counted.
    """
    failures = [rollout.failure for rollout in rollouts if rollout.reward is None]
    if len(failures) <= max_share * len(rollouts) and len(failures) < len(rollouts):
        return
    reasons = Counter(failures).most_common(3)
    listed = "; ".join(f"{count} × {reason}" for reason, count in reasons)
    raise RunStopped(
        f"{len(failures)} of {len(rollouts)} rollouts were not scored "
        f"(training.max_unscored_share: {max_share:g}): {listed}"
    )


def check_policy_gap(gap: float, *, limit: float) -> None:
    """Stop where the sampled and the trained policy are not the same.

    Args:
        gap: Mean |log π − log μ| over the tokens of a fresh batch.
        limit: What rounding may explain.

    Raises:
        RunStopped: The gap is above the limit, or not a number.
    """
    if gap <= limit:
        return
    raise RunStopped(
        f"sampler and trainer are not the same policy: mean |log π − log μ| is {gap:.2g} a token "
        f"on a fresh batch, at most {limit:g} is rounding. The importance ratios would be wrong. "
        f"Same quantisation, same adapter, same temperature on both sides? If you accept the gap, "
        f"raise training.max_policy_gap"
    )


def hint(records: Sequence[StepRecord]) -> str:
    """Return advice in plain words where the last steps taught nothing; else an empty text."""
    last = records[-_HINT_STEPS:]
    if len(records) % _HINT_STEPS or not last:
        return ""
    if all(record.reward_mean is not None and record.reward_mean <= 0 for record in last):
        return f"every reward was 0 or less for {_HINT_STEPS} steps. {_verdicts(last)}"
    if all(record.optimiser_steps == 0 for record in last):
        return (
            f"no group carried signal for {_HINT_STEPS} steps: all members of each got the same "
            f"reward. Easier or harder problems, or a larger group_size. {_verdicts(last)}"
        )
    return ""


def _verdicts(records: Sequence[StepRecord]) -> str:
    counts: Counter[str] = Counter()
    for record in records:
        counts.update(record.verdicts)
    if not counts:
        return "The environment gives no verdicts; read samples.jsonl."
    listed = ", ".join(f"{verdict} {count}" for verdict, count in counts.most_common())
    (most, _), *_ = counts.most_common(1)
    meaning = _VERDICT_MEANINGS.get(most, "")
    return f"Verdicts: {listed}." + (f" Most often {meaning}." if meaning else "")
