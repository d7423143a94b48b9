"""vLLM as a sampler: real engines on a tiny model, against the trainer's own numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from rltrain.batch import TrainingRow, make_batch  # noqa: E402
from rltrain.manifest import Algorithm, Network  # noqa: E402
from rltrain.policy import Policy, load_policy  # noqa: E402
from rltrain.rollout import Completion, Request, Sampling, Transcript  # noqa: E402
from rltrain.sampler.adapters import Adapters  # noqa: E402
from rltrain.sampler.options import engine_options  # noqa: E402
from rltrain.sampler.turns import Turns  # noqa: E402
from rltrain.sampler.vllm import (  # noqa: E402
    VllmEngine,
    VllmSampler,
    can_sleep,
    engine_argument_names,
    is_installed,
)

pytestmark = [
    pytest.mark.train,
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed(), reason="vLLM is not installed"),
]

DEVICE = torch.device("cpu")


class StayingTrainer:
    def leave(self) -> None:
        raise AssertionError("nothing sleeps on a CPU")

    come_back = leave


def options(**config: object) -> dict[str, object]:
    made = engine_options(
        Algorithm(vllm_config=config),
        lora_r=16,
        device="cpu",
        dtype="float32",
        known=engine_argument_names(),
        can_sleep=can_sleep(),
    )
    assert made.sleep_level is None
    return dict(made.arguments)


@pytest.fixture(scope="module")
def policy(broad_model: Path) -> Policy:
    return load_policy(
        Network(pretrained_model_name_or_path=str(broad_model)), Algorithm(), device=DEVICE
    )


@pytest.fixture(scope="module")
def engine(policy: Policy, broad_model: Path) -> Iterator[VllmEngine]:
    """Return one engine for all tests: building it takes seconds."""
    engine = VllmEngine(str(broad_model), options(), context_length=512)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def adapters(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adapters]:
    memory = tmp_path_factory.mktemp("memory")
    with Adapters(policy.save_adapter, adapter_bytes=2**20, memory=memory) as adapters:
        yield adapters


@pytest.fixture
def sampler(engine: VllmEngine, policy: Policy, adapters: Adapters) -> VllmSampler:
    change_adapter(policy, seed=1)
    turns = Turns(engine, StayingTrainer(), level=None, memory_bytes=lambda: 0)
    return VllmSampler(engine, policy, adapters, turns)


def change_adapter(policy: Policy, *, seed: int) -> None:
    """Give the adapter random weights that change what the model says."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))


PLAIN = Sampling(temperature=1.0)
PROMPTS = [[5, 6, 7, 8], [9], [10, 11], [5, 6, 7, 8]]


def request(
    key: int, prompt: list[int], *, sampling: Sampling = PLAIN, max_tokens: int = 12
) -> Request:
    return Request(
        key=key, prompt_ids=prompt, max_tokens=max_tokens, sampling=sampling, seed=1000 + key
    )


def finish(sampler: VllmSampler) -> dict[int, Completion]:
    done: dict[int, Completion] = {}
    while sampler.can_advance(is_more_coming=True):
        done.update({completion.key: completion for completion in sampler.advance()})
    return done


def sample(sampler: VllmSampler, requests: list[Request]) -> dict[int, Completion]:
    with sampler.serving():
        for item in requests:
            sampler.submit(item)
        return finish(sampler)


def gap(
    policy: Policy, done: dict[int, Completion], prompts: list[list[int]], temperature: float = 1.0
) -> tuple[float, float]:
    """Return the largest |log π − log μ|, and the same of the base without its adapter."""
    rows = [
        TrainingRow(Transcript().given(prompt).sampled(done[key]), 1.0)
        for key, prompt in enumerate(prompts)
    ]
    batch = make_batch(rows, pad_id=policy.pad_id)
    with policy.generating():
        own = policy.token_logprobs(batch, temperature=temperature).logprobs
        base = policy.reference_logprobs(batch, temperature=temperature)
    mask, behaviour = batch.action_mask, batch.behaviour_logprobs
    return float((own - behaviour)[mask].abs().max()), float((base - behaviour)[mask].abs().max())


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
def test_behaviour_logprobs_are_the_trainers(
    sampler: VllmSampler, policy: Policy, temperature: float
) -> None:
    """In fp32 no token differs by 1e-4 at any temperature; without the adapter they differ."""
    sampling = Sampling(temperature=temperature)
    done = sample(sampler, [request(k, p, sampling=sampling) for k, p in enumerate(PROMPTS)])

    own, base = gap(policy, done, PROMPTS, temperature)

    assert own < 1e-4
    assert base > 0.1


def test_no_version_of_the_adapter_is_stale(sampler: VllmSampler, policy: Policy) -> None:
    """Five versions one after the other: the logprobs are those of the newest each time."""
    answers = []
    for seed in range(10, 15):
        change_adapter(policy, seed=seed)
        done = sample(sampler, [request(key, prompt) for key, prompt in enumerate(PROMPTS)])
        own, _ = gap(policy, done, PROMPTS)
        assert own < 1e-4, f"version of seed {seed}"
        answers.append(tuple(done[0].token_ids))
    assert len(set(answers)) == 5


def test_what_is_sampled_depends_on_the_seed_alone(sampler: VllmSampler) -> None:
    """Alone or in company the same tokens; the same prompt with another seed other ones."""
    requests = [request(key, prompt) for key, prompt in enumerate(PROMPTS)]

    together = sample(sampler, requests)
    alone = {item.key: sample(sampler, [item])[item.key] for item in requests}

    for key in together:
        assert together[key].token_ids == alone[key].token_ids
    assert together[0].token_ids != together[3].token_ids


def test_greedy_is_the_argmax_of_the_full_forward(sampler: VllmSampler, policy: Policy) -> None:
    """At temperature 0 each token is the trainer's most probable one after its prefix."""
    greedy = Sampling(temperature=0.0)
    done = sample(sampler, [request(k, p, sampling=greedy) for k, p in enumerate(PROMPTS[:3])])

    for key, prompt in enumerate(PROMPTS[:3]):
        prefix = list(prompt)
        for token in done[key].token_ids:
            with policy.generating():
                logits = policy.forward(input_ids=torch.tensor([prefix]), use_cache=False).logits
            assert token == int(logits[0, -1].argmax())
            prefix.append(token)


@pytest.mark.parametrize("cut", [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.2}])
def test_truncated_logprobs_are_of_what_is_left(
    sampler: VllmSampler, policy: Policy, cut: dict[str, float]
) -> None:
    """As in generation with Transformers: of the tokens that are left, to rounding."""
    from rltrain.sampler.hf import truncate

    sampling = Sampling(temperature=1.0, **cut)
    done = sample(sampler, [request(0, [5, 6], sampling=sampling, max_tokens=8)])[0]

    prefix = [5, 6]
    for token, logprob in zip(done.token_ids, done.behaviour_logprobs, strict=True):
        with policy.generating():
            logits = policy.forward(input_ids=torch.tensor([prefix]), use_cache=False).logits
        left = truncate(logits[:, -1].float(), sampling).log_softmax(-1)[0]
        assert logprob == pytest.approx(float(left[token]), abs=1e-4)
        prefix.append(token)


def test_a_completion_ends_with_its_stop_token_or_is_cut(
    sampler: VllmSampler, policy: Policy
) -> None:
    """`stop` ends with the only stop token in it; `length` has max_tokens and none."""
    done = sample(sampler, [request(key, [5], max_tokens=40) for key in range(64)])

    assert {completion.finish for completion in done.values()} == {"stop", "length"}
    for completion in done.values():
        stops = [token in policy.stop_ids for token in completion.token_ids]
        assert len(completion.token_ids) == len(completion.behaviour_logprobs)
        if completion.finish == "stop":
            assert stops == [False] * (len(stops) - 1) + [True]
        else:
            assert stops == [False] * 40


def test_completions_come_out_one_by_one_and_others_join(sampler: VllmSampler) -> None:
    """A short one comes out while a long one runs; what is asked then runs beside it."""
    with sampler.serving():
        sampler.submit(request(0, [5], max_tokens=2))
        sampler.submit(request(1, [9], max_tokens=60, sampling=Sampling(temperature=0.0)))
        first = sampler.advance() + sampler.advance()
        assert [completion.key for completion in first] == [0]
        sampler.submit(request(2, [5, 6], max_tokens=2))
        order = []
        while sampler.can_advance(is_more_coming=False):
            order += [completion.key for completion in sampler.advance()]
    assert order == [2, 1]


def test_an_episode_goes_on_with_its_own_tokens(sampler: VllmSampler, policy: Policy) -> None:
    """A second turn's logprobs are right after prompt, answer and observation, all as ids."""
    with sampler.serving():
        sampler.submit(request(0, [5, 6, 7]))
        first = finish(sampler)[0]
        prompt = [5, 6, 7, *first.token_ids, 20, 21]
        sampler.submit(request(0, prompt))
        second = finish(sampler)
    assert gap(policy, second, [prompt])[0] < 1e-4


def test_completions_of_one_prompt_share_its_prefix(
    sampler: VllmSampler, engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of a group finds the prompt's full blocks in the cache; a new adapter does not."""
    cached: list[int] = []
    step = engine.llm.step

    def recording() -> list[object]:
        outputs = step()
        cached.extend(output.num_cached_tokens for output in outputs if output.finished)
        return outputs

    monkeypatch.setattr(engine.llm, "step", recording)
    prompt = [5 + i % 90 for i in range(300)]
    for _ in range(2):
        with sampler.serving():
            for key in range(2):
                sampler.submit(request(key, prompt, max_tokens=1))
                finish(sampler)
    assert cached == [0, 256, 0, 256]  # blocks of 128


def test_more_prompt_tokens_than_a_step_takes(sampler: VllmSampler, policy: Policy) -> None:
    """Prompts of 6,400 tokens, of which a step takes 4,096: all are answered, none in pieces."""
    prompts = [[key + 5, *(5 + i % 90 for i in range(99))] for key in range(64)]

    done = sample(sampler, [request(k, p, max_tokens=4) for k, p in enumerate(prompts)])

    assert len(done) == 64
    assert gap(policy, done, prompts)[0] < 1e-4


def test_what_is_aborted_never_comes_out(sampler: VllmSampler, engine: VllmEngine) -> None:
    """Neither after `abort` nor when serving ends with requests under way."""
    with sampler.serving():
        sampler.submit(request(0, [5], max_tokens=400))
        sampler.advance()
        sampler.abort()
        assert not sampler.can_advance(is_more_coming=False)
        sampler.submit(request(0, [9], max_tokens=400))
        sampler.advance()
    assert not engine.llm.has_unfinished_requests()
    assert sample(sampler, [request(0, [9], max_tokens=3)]).keys() == {0}


def test_weights_are_read_again(sampler: VllmSampler, engine: VllmEngine, policy: Policy) -> None:
    """What level 2 does after waking up: from rubbish back to the base, below a new adapter."""

    def spoil(model: torch.nn.Module) -> None:
        for weight in model.parameters():
            weight.data.zero_()

    engine.llm.apply_model(spoil)

    engine.reload_weights()

    done = sample(sampler, [request(key, prompt) for key, prompt in enumerate(PROMPTS)])
    assert gap(policy, done, PROMPTS)[0] < 1e-4
