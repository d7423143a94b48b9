"""Pages and curves: self-contained, and safe with whatever models write."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from attrs import evolve
from records import rollout, step_record

from rltrain.charts import Series, line_chart, stacked_chart
from rltrain.errors import SetupError
from rltrain.metrics import EvaluationRecord, RunLog
from rltrain.report import compare_runs, write_report
from rltrain.rollout import Turn

HOSTILE = "</pre><script>alert(1)</script>\x1b[2J```\n# heading\n<img src=x onerror=alert(1)>"


def write_run(folder: Path) -> Path:
    """Write the files of a run of three steps whose texts are all hostile."""
    folder.mkdir()
    bad = evolve(
        rollout(1.0),
        prompt=HOSTILE,
        turns=(Turn(completion=HOSTILE, finish="stop", verdict=HOSTILE, observation=HOSTILE),),
    )
    with RunLog(folder) as log:
        for step in (1, 2, 3):
            log.step(
                step_record(
                    step=step,
                    reward_mean=step / 3,
                    reward_std=0.1,
                    verdicts={HOSTILE: 1, "AC": 2},
                )
            )
            log.samples(step, [bad, rollout(None, HOSTILE)], is_evaluation=False)
        log.evaluation(
            EvaluationRecord(
                step=3,
                episodes=1,
                unscored=0,
                reward_mean=0.5,
                reward_std=0.0,
                solved=0.5,
                completion_tokens=1.0,
                cut_share=0.0,
                verdicts={},
                failures={},
                seconds=1.0,
            )
        )
    return folder


class Tags(HTMLParser):
    """Collects the elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_a_page_holds_hostile_text_as_text(tmp_path: Path) -> None:
    """No script, image or handler gets into the page; control characters are spelled out."""
    folder = write_run(tmp_path / "run")

    write_report(folder)

    page = (folder / "report.html").read_text()
    tags = Tags(page)
    assert not tags.tags & {"script", "img", "iframe", "link", "a"}
    assert not {name for name in tags.attributes if name.startswith("on") or name == "src"}
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    assert "default-src 'none'" in page
    assert "width=device-width" in page


def test_samples_cannot_end_their_code_blocks(tmp_path: Path) -> None:
    """A fence in an answer does not close the block around it."""
    folder = write_run(tmp_path / "run")

    write_report(folder)

    text = (folder / "samples.md").read_text()
    assert "\x1b" not in text
    outside = re.sub(r"^(`{4,})text\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "<script>" not in outside
    assert "# heading" not in outside


def test_the_curve_is_a_picture(tmp_path: Path) -> None:
    """`reward.png` is a PNG."""
    folder = write_run(tmp_path / "run")

    write_report(folder)

    assert (folder / "reward.png").read_bytes().startswith(b"\x89PNG")


def test_runs_are_compared_on_one_page(tmp_path: Path) -> None:
    """One row and one line a run; a folder without a run is refused."""
    folders = [write_run(tmp_path / name) for name in ("first", "second")]

    compare_runs(folders, tmp_path / "both.html")

    page = (tmp_path / "both.html").read_text()
    assert page.count("<td>first") == page.count("<td>second") == 1
    with pytest.raises(SetupError, match=r"no metrics\.jsonl"):
        compare_runs([tmp_path], tmp_path / "none.html")


def test_a_line_goes_through_its_points() -> None:
    """The least value is at the bottom, the greatest at the top, first and last at the sides."""
    svg = line_chart("t", [Series(name="a", points=[(0, 0.0), (10, 1.0)])])

    assert '<polyline points="52.0,230.0 628.0,12.0"' in svg


def test_a_stack_adds_up() -> None:
    """Two parts of one bar share its height by their values."""
    svg = stacked_chart("t", [1.0], {"a": [1.0], "b": [3.0]})

    heights = [float(height) for height in re.findall(r'height="([\d.]+)" fill', svg)]
    assert heights == pytest.approx([54.5, 163.5])


def test_charts_without_points_are_left_out() -> None:
    """Nothing known, nothing drawn."""
    assert line_chart("t", [Series(name="a", points=[])]) == ""
    assert stacked_chart("t", [], {}) == ""
