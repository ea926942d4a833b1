#!/usr/bin/env bash
# Checks form: ruff's rules and format for Python, clang-format for C++. `--fix` repairs what it can.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
make_environment lint
mapfile -t sources < <(git ls-files --cached --others --exclude-standard 'csrc/*.cc' 'csrc/*.h')
if [ "${1:-}" = --fix ]; then
  .venv/bin/ruff check --fix .
  .venv/bin/ruff format .
  .venv/bin/clang-format -i "${sources[@]}"
else
  .venv/bin/ruff check .
  .venv/bin/ruff format --check .
  .venv/bin/clang-format --dry-run -Werror "${sources[@]}"
fi
