#!/usr/bin/env bash
# Sets everything up and runs the main job: trains two small networks on handwritten digits on tpu.
# Arguments go to examples/train_digits.py, after the defaults.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
make_environment examples
exec .venv/bin/python examples/train_digits.py --device tpu --require 0.97 "$@"
