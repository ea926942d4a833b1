"""A compiled training script in further processes: the cache has its programs."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

SCRIPT = """
import json, torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 2)).to("tpu")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
forward = torch.compile(lambda x: model(x).pow(2).mean())
update = torch.compile(optimizer.step)
losses = []
for _ in range(3):
    loss = forward(torch.ones(3, 4, device="tpu"))
    loss.backward()
    update()
    optimizer.zero_grad()
    losses.append(loss.item())
kept = torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"]
print(json.dumps([losses, torch.tpu.compile_count(), torch.tpu.cache_stats()["programs"], kept]))
"""


def _run(folder) -> list:
    environment = os.environ | {
        "TORCH_TPU_CACHE": "on",
        "TORCH_TPU_CACHE_DIR": str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "graphs"),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_second_process_compiles_nothing_and_derives_no_graph(tmp_path):
    losses, compiled, programs, kept = _run(tmp_path)
    assert compiled == programs > 0 and kept == 0
    again, compiled_again, _, kept_again = _run(tmp_path)
    assert compiled_again == 0 and kept_again == 2  # the model's graphs, and the optimiser's
    assert again == losses


def test_four_processes_share_an_empty_cache(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: _run(tmp_path), range(4)))
    assert len({str(losses) for losses, *_ in runs}) == 1
    assert sum(compiled for _, compiled, *_ in runs) <= 2 * runs[0][2]
    assert _run(tmp_path)[1] == 0
