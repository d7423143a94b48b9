"""The program in an answer."""

from __future__ import annotations

import time

import pytest

from envhost.judge.extract import extract_code

CASES = {
    "plain": ("```python\nprint(1)\n```", "print(1)\n"),
    "last of two": ("```python\n1\n```\nor\n```py\n2\n```", "2\n"),
    "no language": ("```\nprint(1)\n```", "print(1)\n"),
    "another language after it": ("```python\n1\n```\n```text\nout\n```", "1\n"),
    "never closed": ("```python\nprint(1)", "print(1)\n"),
    "CRLF": ("```python\r\nprint(1)\r\n```", "print(1)\n"),
    "indented": ("- so\n  ```python\n  if 1:\n    x\n  ```", "if 1:\n  x\n"),
    "tildes": ("~~~python\nprint(1)\n~~~", "print(1)\n"),
    "longer fence holds shorter": ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
    "markdown around it": ("```markdown\n```python\n1\n```\n```", "1\n"),
    "longer markdown around it": ("````markdown\n```python\n1\n```\n````", "1\n"),
    "after prose": ("Answer: ```python\nprint(1)\n```", "print(1)\n"),
    "closed at the end of the code": ("```py\nprint(1)```\nand\n```text\nx\n```", "print(1)\n"),
    "thinking does not count": ("<think>```python\n1\n```</think>none", None),
    "thinking never ends": ("<think>```python\n1\n```", None),
    "after thinking": ("<think>```py\n1\n```</think>```python\n2\n```", "2\n"),
    "no fence": ("print(1)", None),
    "empty block": ("```python\n```", None),
    "empty block after a full one": ("```python\n1\n```\n```\n\n```", "1\n"),
    "inline code": ("use ```print(1)``` here", None),
    "on one line": ("```python print(1)```", "print(1)\n"),
    "other language only": ("```cpp\nint main(){}\n```", None),
    "capital language": ("```Python\n1\n```", "1\n"),
    "nothing": ("", None),
}


@pytest.mark.parametrize("case", CASES)
def test_cases(case: str) -> None:
    """Each kind of answer gives its program."""
    answer, expected = CASES[case]
    assert extract_code(answer) == expected


@pytest.mark.parametrize(
    "unit",
    ["`", "```js\n", "```py\n", "```py\nx```\n", "``` ", "~~~\n", "\n", "a ```python", "<think>"],
)
def test_reads_in_linear_time(unit: str) -> None:
    """A megabyte of anything is read within seconds."""
    started = time.perf_counter()
    extract_code(unit * (1_000_000 // len(unit)))
    assert time.perf_counter() - started < 5
