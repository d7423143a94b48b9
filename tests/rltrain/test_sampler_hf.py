"""Generation with the trained module: the same policy, whatever shares the wave."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from rltrain.manifest import Algorithm, Network  # noqa: E402
from rltrain.policy import Policy, load_policy  # noqa: E402
from rltrain.rollout import Completion, Request, Sampling  # noqa: E402
from rltrain.sampler.hf import TransformersSampler, truncate  # noqa: E402

pytestmark = pytest.mark.train

PLAIN = Sampling(temperature=1.0)


@pytest.fixture(scope="module")
def policy(tiny_model: Path) -> Policy:
    policy = load_policy(
        Network(pretrained_model_name_or_path=str(tiny_model)),
        Algorithm(quantization="nf4"),
        device=torch.device("cpu"),
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator))
    return policy


def request(
    key: int, prompt: list[int], *, sampling: Sampling = PLAIN, max_tokens: int = 12
) -> Request:
    return Request(
        key=key, prompt_ids=prompt, max_tokens=max_tokens, sampling=sampling, seed=1000 + key
    )


def sample(
    policy: Policy, requests: list[Request], *, wave_rows: int = 512
) -> dict[int, Completion]:
    """Run requests to their ends."""
    sampler = TransformersSampler(policy, wave_rows=wave_rows)
    done: dict[int, Completion] = {}
    with sampler.serving():
        for item in requests:
            sampler.submit(item)
        while sampler.can_advance(is_more_coming=False):
            done.update({completion.key: completion for completion in sampler.advance()})
    return done


PROMPTS = [[5, 6, 7, 8], [9], [10, 11], [5, 6, 7, 8]]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
def test_behaviour_logprobs_are_the_trainers(policy: Policy, temperature: float) -> None:
    """Mean |log π − log μ| over a ragged wave is rounding, at any temperature."""
    from rltrain.batch import TrainingRow, make_batch
    from rltrain.rollout import Transcript

    sampling = Sampling(temperature=temperature)
    done = sample(policy, [request(k, p, sampling=sampling) for k, p in enumerate(PROMPTS)])

    rows = [
        TrainingRow(Transcript().given(prompt).sampled(done[key]), 1.0)
        for key, prompt in enumerate(PROMPTS)
    ]
    batch = make_batch(rows, pad_id=policy.pad_id)
    logprobs = policy.token_logprobs(batch, temperature=temperature).logprobs
    gap = (logprobs - batch.behaviour_logprobs)[batch.action_mask].abs()
    assert gap.max() < 1e-4


def test_what_is_sampled_does_not_depend_on_the_company(policy: Policy) -> None:
    """Alone, in waves of two, or all together: the same tokens for the same seed."""
    requests = [request(key, prompt) for key, prompt in enumerate(PROMPTS)]

    together = sample(policy, requests)
    pairs = sample(policy, requests, wave_rows=2)
    alone = {item.key: sample(policy, [item])[item.key] for item in requests}

    for key in together:
        assert together[key].token_ids == pairs[key].token_ids == alone[key].token_ids
        assert together[key].behaviour_logprobs == pytest.approx(
            alone[key].behaviour_logprobs, abs=1e-4
        )
    assert together[0].token_ids != together[3].token_ids  # the same prompt, another seed


def test_greedy_is_the_argmax_of_the_full_forward(policy: Policy) -> None:
    """At temperature 0 each token is the most probable one after its prefix."""
    done = sample(
        policy,
        [request(k, p, sampling=Sampling(temperature=0.0)) for k, p in enumerate(PROMPTS[:3])],
    )

    for key, prompt in enumerate(PROMPTS[:3]):
        prefix = list(prompt)
        for token in done[key].token_ids:
            logits = policy.forward(input_ids=torch.tensor([prefix]), use_cache=False).logits
            assert token == int(logits[0, -1].argmax())
            prefix.append(token)


def test_a_completion_ends_with_its_stop_token_or_is_cut(policy: Policy) -> None:
    """`stop` ends with the only stop token in it; `length` has max_tokens and none."""
    done = sample(policy, [request(key, [5], max_tokens=40) for key in range(64)])

    kinds = Counter(completion.finish for completion in done.values())
    assert set(kinds) == {"stop", "length"}
    for completion in done.values():
        stops = [token in policy.stop_ids for token in completion.token_ids]
        assert len(completion.token_ids) == len(completion.behaviour_logprobs)
        if completion.finish == "stop":
            assert stops == [False] * (len(stops) - 1) + [True]
        else:
            assert len(stops) == 40
            assert not any(stops)


def test_tokens_come_with_their_probabilities(policy: Policy) -> None:
    """Of 4,000 first tokens each kind's share is its probability, to five deviations."""
    done = sample(policy, [request(key, [5, 6], max_tokens=1) for key in range(4000)])

    counts = Counter(completion.token_ids[0] for completion in done.values())
    with torch.no_grad():
        logits = policy.forward(input_ids=torch.tensor([[5, 6]]), use_cache=False).logits[0, -1]
    for token, probability in enumerate(logits.softmax(-1).tolist()):
        deviation = math.sqrt(4000 * probability * (1 - probability))
        assert abs(counts[token] - 4000 * probability) < 5 * deviation + 1


def test_completions_come_out_one_by_one(policy: Policy) -> None:
    """A short one is given out before the long ones of its wave end."""
    sampler = TransformersSampler(policy)
    with sampler.serving():
        sampler.submit(request(0, [5], max_tokens=1))
        sampler.submit(request(1, [5], max_tokens=9))
        first = sampler.advance()
        assert [completion.key for completion in first] == [0]
        assert sampler.can_advance(is_more_coming=True)


def test_a_wave_waits_for_what_is_coming(policy: Policy) -> None:
    """With other requests on their way none starts; aborting forgets what waits."""
    sampler = TransformersSampler(policy)
    with sampler.serving():
        sampler.submit(request(0, [5]))
        assert not sampler.can_advance(is_more_coming=True)
        assert sampler.can_advance(is_more_coming=False)
        sampler.abort()
        assert not sampler.can_advance(is_more_coming=False)


def test_serving_gives_the_training_mode_back(policy: Policy) -> None:
    """Inside there is no gradient and no dropout; after it there is again."""
    sampler = TransformersSampler(policy)
    assert policy.model.training
    with sampler.serving():
        assert not policy.model.training
        assert not torch.is_grad_enabled()
    assert policy.model.training
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(temperature=1.0), [0, 1, 2, 3]),
        (Sampling(temperature=1.0, top_k=2), [0, 1]),
        (Sampling(temperature=1.0, top_k=9), [0, 1, 2, 3]),
        (Sampling(temperature=1.0, top_p=0.5), [0]),
        (Sampling(temperature=1.0, top_p=0.51), [0, 1]),
        (Sampling(temperature=1.0, top_p=0.81), [0, 1, 2]),
        (Sampling(temperature=1.0, min_p=0.35), [0, 1]),
        (Sampling(temperature=1.0, top_p=0.01), [0]),
    ],
)
def test_truncation_keeps_the_likeliest(sampling: Sampling, kept: list[int]) -> None:
    """Hand-computed for probabilities 0.5, 0.3, 0.15 and 0.05."""
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=torch.float64).log()

    result = truncate(logits, sampling)

    assert torch.isfinite(result)[0].nonzero().flatten().tolist() == kept
