"""The Python in the documentation runs, and what it quotes from the source is what is there.

A block marked ``python`` runs: the blocks of one page one after the other, in a process of their
own. A block marked ``python from=PATH`` is a quotation and must occur in that file as it stands.
Files that the text names must exist.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").glob("*.md")) + ["README.md"]
BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`((?:csrc|torch_tpu|tests|docs|scripts|examples|benchmarks)/[\w./-]*)`")


def blocks(page: str) -> list[tuple[str, str]]:
    """(what follows the word python, the code) of every block."""
    return [(m[1].strip(), m[2]) for m in BLOCK.finditer((ROOT / page).read_text())]


RUNNING = [page for page in PAGES if any(not mark for mark, _ in blocks(page))]


@pytest.mark.parametrize("page", RUNNING)
def test_examples_run(page):
    code = "\n".join(code for mark, code in blocks(page) if not mark)
    environment = {**os.environ, "TORCH_TPU_FALLBACK": "warn"}
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    assert done.returncode == 0, done.stderr


QUOTED = [(page, mark, code) for page in PAGES for mark, code in blocks(page) if mark]


@pytest.mark.parametrize(("page", "mark", "code"), QUOTED)
def test_quotations_are_what_the_source_says(page, mark, code):
    assert mark.startswith("from=")
    assert code.strip() in (ROOT / mark.removeprefix("from=")).read_text()


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page):
    names = set(NAMED.findall((ROOT / page).read_text()))
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []


def test_the_two_guides_are_there():
    assert {"docs/architecture.md", "docs/adding_an_operator.md"} <= set(PAGES)
