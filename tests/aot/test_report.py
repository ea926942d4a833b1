"""The screen, the HTML file and the command line."""

from __future__ import annotations

import html.parser
import pathlib
import re
import subprocess
import sys
import types

import pytest
import recorded

from torch_tpu.aot import __main__ as command, collectives, estimate, html as page, report, units
from torch_tpu.aot.executable import Memory
from torch_tpu.api import plugin

HAS_LIBTPU = plugin.library_of("libtpu", "libtpu.so") is not None
needs_libtpu = pytest.mark.skipif(not HAS_LIBTPU, reason="needs libtpu: pip install libtpu")
RECORD = recorded.DATA / "record.py"


def executable(name: str, limit: int = 16 * 10**9) -> types.SimpleNamespace:
    """What `Executable` has, of a recorded program."""
    module, chip = recorded.module(name), recorded.CHIP
    found = collectives.of(module, chip, recorded.DEVICES)
    peak = recorded.facts(name)["memory"]["peak_memory_in_bytes"]
    return types.SimpleNamespace(
        name=f"<{name}>",
        parameters=2_099_200,
        chip=chip,
        module=module,
        partitions=module.partitions,
        collectives=found,
        estimate=estimate.estimate(module, chip, collectives=found, model_flops=5e8),
        memory=Memory(peak // 2, 4096, 1024, peak // 4, 98816, peak, limit),
        topology=types.SimpleNamespace(
            name="v5e:2x2", kind=chip.kind, size=4, devices=recorded.DEVICES
        ),
    )


@pytest.mark.parametrize("name", ["named", "loop", "unknown", "step"])
def test_a_screen_is_a_screen(name):
    text = report.screen(executable(name))
    assert max(map(len, text.splitlines())) <= report.WIDTH
    assert len(text.splitlines()) < 60
    assert "\033" not in text
    assert "fits: " in text and "roofline" in text and "MFU" in text


def test_the_screen_says_what_and_where():
    text = report.screen(executable("named"))
    assert re.search(r"convolution fusion +aten::mm +model.py:12", text)
    assert "2.1 M parameters, on 1 of 4 devices of v5e:2x2" in text
    assert re.search(r"all-gather over x2·y2", report.screen(executable("step")))


def test_what_does_not_fit_is_said_in_red():
    text = report.screen(executable("named", limit=10**6), colour=True)
    assert "\033[31mdoes not fit" in text


class Checker(html.parser.HTMLParser):
    """Tags that are open, and everything that would be fetched."""

    VOID = {"meta"}  # drawings close their tags

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.tags = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.fetched += [v for k, v in attributes if k in ("src", "href", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["named", "loop", "unknown", "step"])
def test_the_file_needs_nothing_else(name):
    text = page.page(executable(name))
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert checker.fetched == []
    assert "script" not in checker.tags and "link" not in checker.tags
    assert "nan" not in text and "inf," not in text
    assert f"<h1>&lt;{name}&gt;</h1>" in text
    assert "prefers-color-scheme: dark" in text


def test_the_file_has_drawings_and_tables():
    text = page.page(executable("step"))
    assert text.count("<svg") == 2
    assert "Live bytes of HBM" in text and "Roofline" in text and "all-gather" in text


@pytest.mark.parametrize(
    "number, text",
    [(0, "0"), (1.5, "1.5 s"), (0.25, "250 ms"), (3.2e-5, "32 µs"), (4e-9, "4 ns")],
)
def test_seconds_read_well(number, text):
    assert units.seconds(number) == text


def test_sizes_read_well():
    assert units.of_bytes(999) == "999 B"
    assert units.of_bytes(999.9) == "1 kB"
    assert units.of_bytes(1.5e9) == "1.5 GB"
    assert units.scaled(8.19e9) == "8.19 G"


def failed(capsys, *arguments: str) -> tuple[int, str]:
    status = command.main(arguments)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return status, printed.err


def test_wrong_calls_are_one_line(capsys, tmp_path):
    assert "no TPU topology" in failed(capsys, "estimate", "x.py", "--topology", "v99:1")[1]
    status, text = failed(capsys, "estimate", str(tmp_path / "no.py"), "--topology", "v5e:2x2")
    assert status == 2 and "there is no file" in text
    empty = tmp_path / "empty.py"
    empty.write_text("")
    assert "does not define build" in failed(capsys, "hlo", str(empty), "--topology", "v5e:2x2")[1]
    text = failed(capsys, "hlo", str(RECORD), "--topology", "v5e:2x2", "--wide", "3")[1]
    assert "no option --wide; it has --batch, --width, --layers, --dtype" in text


def test_options_become_arguments():
    build = lambda topology, **more: None  # noqa: E731
    words = ["--batch", "8", "--remat=false", "--dtype", "bfloat16", "--name", "a b", "--on"]
    found = command._options(build, words)
    assert found["batch"] == 8 and found["remat"] is False and found["on"] is True
    assert str(found["dtype"]) == "torch.bfloat16" and found["name"] == "a b"


def test_topologies_are_listed(capsys):
    assert command.main(["topologies"]) == 0
    text = capsys.readouterr().out
    assert "TPU7x" in text and "tpu7x:4x4x4" in text and "guessed" in text


@needs_libtpu
def test_from_a_file_to_a_report(tmp_path):
    written = tmp_path / "out.html"
    call = [sys.executable, "-m", "torch_tpu.aot", "estimate", str(RECORD), "--width", "256"]
    call += ["--topology", "v5e:2x2", "--html", str(written)]
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(call, capture_output=True, text=True, cwd=root, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "small network" in done.stdout and "aten::" in done.stdout
    assert "record.py:" in done.stdout  # the line of the model
    assert "<svg" in written.read_text()
