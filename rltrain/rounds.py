"""A training step's rollouts, and an evaluation's: which episodes, sampled how, and with patience.

Owns the choice of episodes and of sampling settings, their division among the ranks, and the
waiting for a server that went away. A round's rollouts come out the same on every rank.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from attrs import frozen

from .collect import Collected, Collector, joined_rounds
from .environments import EnvironmentFacts, evaluation_episodes, training_episodes
from .guards import check_unscored, is_server_away
from .interrupts import StopRequest
from .manifest import Manifest
from .progress import Display
from .ranks import Ranks
from .rollout import Episode, Sampling

__all__ = ["Rounds"]

_GREEDY = Sampling(temperature=0.0)


@frozen(kw_only=True, eq=False)
class Rounds:
    """Plays the rounds of a run.

    Args:
        manifest: Sizes, seeds and sampling.
        facts: How many problems there are.
        collector: What plays the episodes.
        display: Hears when the server is away.
        stop: Ends the waiting.
        ranks: The processes that share the episodes.
        wait_seconds: How long a server that went away is waited for.
        pause_seconds: Between two tries.
    """

    manifest: Manifest
    facts: EnvironmentFacts
    collector: Collector
    display: Display
    stop: StopRequest
    ranks: Ranks
    wait_seconds: float = 300.0
    pause_seconds: float = 5.0

    def training(self, step: int) -> Collected:
        """Play a step's episodes; where the server is away, wait and play them again.

        The episodes and their random numbers depend on the run's seed and the step alone, so that
        the second try is the same as the first would have been.

        Raises:
            RunStopped: Too few rollouts were scored.
        """
        algorithm = self.manifest.algorithm
        episodes = training_episodes(
            run_seed=algorithm.seed,
            step=step,
            groups=algorithm.batch_size,
            group_size=algorithm.group_size,
            dataset_size=self.facts.dataset_size,
        )
        sampling = Sampling(
            temperature=algorithm.temperature,
            top_p=algorithm.top_p,
            top_k=algorithm.top_k or 0,
            min_p=algorithm.min_p or 0.0,
        )
        give_up_at = time.monotonic() + self.wait_seconds
        max_share = self.manifest.training.max_unscored_share
        while True:
            collected = self._play(episodes, sampling)
            is_away = is_server_away(collected.rollouts, max_share=max_share)
            is_enough = self.stop.is_requested or time.monotonic() > give_up_at
            if not is_away or self.ranks.any(is_enough):
                check_unscored(collected.rollouts, max_share=max_share)
                return collected
            self.display.line("the environment server is away: waiting for it")
            time.sleep(self.pause_seconds)

    def evaluation(self) -> Collected:
        """Play the held-out episodes greedily; the same ones every time."""
        episodes = evaluation_episodes(
            run_seed=self.manifest.algorithm.seed,
            loop=self.manifest.training.eval_loop,
            evaluation_size=self.facts.evaluation_size,
        )
        return self._play(episodes, _GREEDY)

    def _play(self, episodes: Sequence[Episode], sampling: Sampling) -> Collected:
        """Play this rank's share of the episodes; return what all ranks played, in order.

        Episodes of a group stand together and the ranks' number divides that of the groups, so a
        training group is never split.
        """
        own = self.collector.play(self.ranks.own(episodes), sampling)
        return joined_rounds(self.ranks.gather(own))
