# Makes .venv in the clone, with everything this project needs and the package built into it.
#
# Sourced by the other scripts: `make_environment EXTRAS`, for example `make_environment test,lint`.
# Needs python3.11 or newer, g++ and git on the machine; everything else comes from package registries
# as pip is set up here. Run again, it installs what is missing and compiles what changed.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
        2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "python 3.11 or newer is needed (or name one with PYTHON=...)" >&2
  return 1
}

make_environment() {
  local extras=$1 python
  if ! [ -x .venv/bin/pip ]; then
    python=$(find_python)
    "$python" -m venv --clear .venv
  fi
  # torch comes first and alone: what depends on torch must not choose its version.
  .venv/bin/pip install --quiet torch==2.13.0
  # The build runs in this environment (--no-build-isolation), against exactly this torch.
  .venv/bin/pip install --quiet 'setuptools>=77' 'cmake>=3.22' ninja 'xla-cpu-pjrt>=0.0.1,<0.1'
  .venv/bin/pip install --quiet --no-build-isolation -e ".[$extras]"
  # pip does not compile an editable package, and the first `import torch` should be as quick as any.
  .venv/bin/python -m compileall -q torch_tpu
}
