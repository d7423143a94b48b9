"""From the name of a data set to its problems, split in two.

Owns what names mean, which rows are trained on and which are held out, and the report. Reading
rows is the work of `rows`, looking at them that of `scan`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attrs import field, frozen

from ..errors import ConfigError
from ..settings import nearest
from .datasets import fetched, mapped
from .problems import Columns, ProblemSet, StoredProblems
from .rows import RowsKind, Source, open_rows
from .scan import OnProgress, Scan, scanned

__all__ = ["Part", "Prepared", "Request", "is_light", "load_problems", "prepare", "problem_set"]

_BUNDLED = Path(__file__).parent.parent / "problems"
_LINES = frozenset((".jsonl", ".json"))
_PARQUET = ".parquet"
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_TRAINING_NAMES = frozenset(("train", "training"))
_LIGHT_BYTES = 32 * 1024 * 1024
_WHOLE = ""
"""Name of the split of a data set that has none."""


@frozen(kw_only=True)
class Request:
    """What is to be loaded; a data set that one request names may be divided in many ways."""

    dataset: str
    split: str | None = None
    evaluation_split: str | None = None
    revision: str | None = None
    max_rows: int | None = None
    columns: Columns = field(factory=Columns)


@frozen(kw_only=True)
class Part:
    """A split of a data set as its publisher made it."""

    name: str
    files: tuple[str, ...]
    scan: Scan


@frozen(kw_only=True)
class Prepared:
    """What is known of a data set once its rows have been looked at: all but the rows."""

    kind: RowsKind
    revision: str
    training: Part
    evaluation: Part | None
    """None: the held-out rows are among those of `training`."""


def load_problems(
    wanted: str | Request, *, evaluation_fraction: float = 0.1, shuffle_seed: int = 0
) -> ProblemSet:
    """Load a data set in this process.

    Raises:
        ConfigError: No such data set, or no row of it can be used.
    """
    request = Request(dataset=wanted) if isinstance(wanted, str) else wanted
    prepared = prepare(request, lambda *_: None)
    return problem_set(
        request, prepared, evaluation_fraction=evaluation_fraction, shuffle_seed=shuffle_seed
    )


def is_light(dataset: str) -> bool:
    """Whether a data set is looked at in no time and without further libraries."""
    try:
        path = _path_of(dataset)
    except ConfigError:
        return True  # as quickly refused
    return path is not None and path.suffix in _LINES and path.stat().st_size <= _LIGHT_BYTES


def prepare(request: Request, on_progress: OnProgress) -> Prepared:
    """Find a data set, fetch it where it must be, and look at all its rows.

    Raises:
        ConfigError: No such data set or split, or it cannot be read.
    """
    source = _source(request, on_progress)
    training, evaluation = _chosen_splits(request, source)
    path = _path_of(request.dataset)
    base = request.dataset.rpartition("/")[2] if path is None else path.name

    def part(split: str) -> Part:
        files = source.splits[split]
        scan = scanned(
            open_rows(source.kind, files, request.columns),
            files,
            columns=request.columns,
            name=f"{base}/{split}" if split else base,
            max_rows=request.max_rows,
            on_progress=on_progress,
        )
        return Part(name=f"{base}/{split}" if split else base, files=files, scan=scan)

    return Prepared(
        kind=source.kind,
        revision=source.revision,
        training=part(training),
        evaluation=None if evaluation is None else part(evaluation),
    )


def _source(request: Request, on_progress: OnProgress) -> Source:
    path, dataset = _path_of(request.dataset), request.dataset
    if path is None:
        on_progress("fetching", 0)
        folder = fetched(dataset, request.revision)
        on_progress("unpacking", 0)
        return mapped(folder, revision=folder.name)
    if request.revision is not None:
        raise ConfigError(f"data set {dataset!r}: a revision is of the hub, and this is a path")
    if path.suffix in _LINES and path.is_file():
        return Source(kind="lines", splits={_WHOLE: (str(path),)})
    if path.is_dir() and (folders := _problem_folders(path)):
        return Source(kind="folders", splits={_WHOLE: folders})
    on_progress("unpacking", 0)
    source = mapped(path)
    if path.is_file():
        (files,) = source.splits.values()  # a split's name would be made up
        return Source(kind="arrow", splits={_WHOLE: files})
    return source


def _path_of(dataset: str) -> Path | None:
    """Return where a data set lies; None for one of the hub.

    Raises:
        ConfigError: It can be none.
    """
    kind, separator, name = dataset.partition(":")
    if separator and kind == "bundled":
        path = _BUNDLED / f"{name}.jsonl"
        if not path.is_file():
            known = ", ".join(sorted(f"bundled:{path.stem}" for path in _BUNDLED.glob("*.jsonl")))
            raise ConfigError(f"data set {dataset!r}: expected one of {known}")
        return path
    path = Path(dataset).expanduser()
    is_data = path.suffix in {*_LINES, _PARQUET}
    if path.is_dir() or (is_data and path.is_file()):
        return path
    if is_data:
        raise ConfigError(f"data set {dataset!r}: no such file")
    if not path.exists() and _HUB_NAME.fullmatch(dataset):
        return None
    raise ConfigError(
        f"data set {dataset!r}: expected bundled:NAME, OWNER/NAME of the hub, a .jsonl or .parquet "
        "file, a folder that `datasets` saved, or a folder of problems"
    )


def _problem_folders(path: Path) -> tuple[str, ...]:
    """Return the folders of problems that a path names, sorted; nothing where it names none."""
    if (path / "problem.md").is_file():
        return (str(path),)
    folders = sorted(each for each in path.iterdir() if each.is_dir())
    if not any((each / "problem.md").is_file() for each in folders):
        return ()
    return tuple(str(each) for each in folders if not each.name.startswith("."))


def _chosen_splits(request: Request, source: Source) -> tuple[str, str | None]:
    """Return the names of the splits to train on and to hold out, as the publisher made them."""
    names = list(source.splits)
    if names == [_WHOLE]:
        return _WHOLE, None
    training = request.split or ("train" if "train" in names else names[0])
    if request.split is None and training != "train" and len(names) > 1:
        raise ConfigError(
            f"data set {request.dataset!r} has several splits: choose one of "
            f"{', '.join(names)} with the option split"
        )
    for option, name in (("split", training), ("evaluation_split", request.evaluation_split)):
        if name is not None and name not in names:
            raise ConfigError(
                f"data set {request.dataset!r} has no split {name!r} for {option}"
                f"{nearest(name, names)}; it has {', '.join(names)}"
            )
    if request.evaluation_split == training:
        raise ConfigError(f"evaluation_split {training!r} is the split that is trained on")
    return training, request.evaluation_split


def problem_set(
    request: Request, prepared: Prepared, *, evaluation_fraction: float, shuffle_seed: int
) -> ProblemSet:
    """Divide the rows, and open them for reading.

    Raises:
        ConfigError: No row can be used.
    """
    training, evaluation, others = _divided(request, prepared, evaluation_fraction)
    dropped = [*prepared.training.scan.dropped, *others]
    held = prepared.evaluation or prepared.training
    if prepared.evaluation is not None:
        dropped += prepared.evaluation.scan.dropped
    files = [*prepared.training.files, *(prepared.evaluation.files if prepared.evaluation else ())]
    tests = sum(prepared.training.scan.tests[n] for n in training)
    tests += sum(held.scan.tests[n] for n in evaluation)
    name = request.dataset + (f"@{prepared.revision[:12]}" if prepared.revision else "")
    report = (
        f"{name}: {len(training)} training and {len(evaluation)} held-out rows, {tests} tests"
        + _reasons(dropped)
    )
    if not tests:
        raise ConfigError(f"data set {report}: nothing is left to serve")
    path = _path_of(request.dataset)
    return ProblemSet(
        name=request.dataset,
        place=str(path.absolute()) if path and ":" not in request.dataset else request.dataset,
        training=_stored(request, prepared.kind, prepared.training, training),
        evaluation=_stored(request, prepared.kind, held, evaluation),
        report=report,
        seed=shuffle_seed,
        files=(*map(Path, files), *([path] if path is not None else ())),
        dropped=tuple(dropped),
    )


def _stored(request: Request, kind: RowsKind, part: Part, chosen: Sequence[int]) -> StoredProblems:
    return StoredProblems(
        rows=open_rows(kind, part.files, request.columns),
        places=[part.scan.places[n] for n in chosen],
        numbers=[part.scan.numbers[n] for n in chosen],
        columns=request.columns,
        name=part.name,
    )


def _divided(
    request: Request, prepared: Prepared, evaluation_fraction: float
) -> tuple[list[int], list[int], list[tuple[str, str]]]:
    """Return the entries of the training part and of the held-out part, and who is in neither.

    A text that is held out is never trained on, whoever made the splits.
    """
    scan, own = prepared.training.scan, prepared.evaluation
    training: list[int] = []
    evaluation = [] if own is None else [*range(len(own.scan.places))]
    dropped: list[tuple[str, str]] = []
    for entry, named in enumerate(scan.splits):
        if own is not None:
            training.append(entry)
        elif named is None or (request.split or "train") == named or _is_training(request, named):
            is_held = named is None and request.evaluation_split is None
            share = scan.digests[entry] / 2**64
            (evaluation if is_held and share < evaluation_fraction else training).append(entry)
        elif request.evaluation_split in {None, named}:
            evaluation.append(entry)
        else:
            dropped.append((_id(prepared.training, entry), f"of the split {named}"))
    if request.evaluation_split is not None and not evaluation:
        raise ConfigError(
            f"data set {request.dataset!r} has no rows in a split {request.evaluation_split!r}"
        )
    digests = (own or prepared.training).scan.digests
    held = {digests[entry] for entry in evaluation}
    kept = [entry for entry in training if scan.digests[entry] not in held]
    dropped += [
        (_id(prepared.training, entry), "whose text is held out too")
        for entry in training
        if scan.digests[entry] in held
    ]
    return kept, evaluation, dropped


def _is_training(request: Request, named: str) -> bool:
    return request.split in {None, *_TRAINING_NAMES} and named in _TRAINING_NAMES


def _id(part: Part, entry: int) -> str:
    return f"{part.name}/{part.scan.numbers[entry]}"


def _reasons(dropped: Sequence[tuple[str, str]]) -> str:
    if not dropped:
        return ""
    counts = Counter(reason for _, reason in dropped).most_common(5)
    reasons = ", ".join(f"{count} {reason}" for reason, count in counts)
    return f"; dropped {len(dropped)} rows: {reasons}"
