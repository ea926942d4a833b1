#!/usr/bin/env bash
# Sets everything up and runs the tests. Arguments go to pytest: `bash scripts/test.sh -k add`.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
make_environment test
exec .venv/bin/python -m pytest -n auto --maxprocesses 8 "$@"
