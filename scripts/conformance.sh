#!/usr/bin/env bash
# Sets everything up and runs the conformance run (docs/conformance.md). Arguments go to it.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
make_environment test
exec .venv/bin/python -m torch_tpu.conformance "$@"
