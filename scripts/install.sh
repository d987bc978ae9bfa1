#!/usr/bin/env bash
# Installs a lock and this project into a virtual environment.
#
#   install.sh cpu|cuda PYTHON VENV
set -euo pipefail
set_name=$1 python=$2 venv=$3

die() { printf 'install: %s\n' "$@" >&2; exit 1; }

[ -n "$python" ] || die "no python3 found; install Python 3.11 with venv and pip"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$version" = 3.11 ] || die "the locks are for Python 3.11 and $python is $version; set PYTHON=… to a Python 3.11"
"$python" -c 'import ensurepip' 2>/dev/null || die "$python has no venv module; install it (Debian: python3.11-venv)"

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "Installing locks/$set_name.lock into $venv (about 2 minutes, 3 GB for the CPU) …"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
if ! "$venv/bin/pip" install -q --no-deps --no-compile -r "locks/$set_name.lock" -r locks/models.lock >"$log" 2>&1; then
  grep -v '^WARNING' "$log" | tail -n 15 >&2
  if grep -qE '(No matching distribution found for|satisfies the requirement|Cannot install) torch==[0-9.]+\+cpu' "$log"; then
    die "pip finds no CPU wheel of torch. Add PyTorch's CPU wheel index with the environment variable" \
        "PIP_EXTRA_INDEX_URL (PyTorch's install page, \"Get Started\", names it for Pip and CPU), then run make again."
  fi
  die "pip failed; its last lines stand above. Mend the cause and run make again."
fi
"$venv/bin/pip" install -q --no-deps --no-build-isolation -e . >"$log" 2>&1 || { tail -n 15 "$log" >&2; die "this project could not be installed"; }
echo "Compiling to bytecode, once …"
"$venv/bin/python" -m compileall -q -j 0 "$venv/lib" >/dev/null 2>&1 || true   # a package may carry a file that isn't Python
rm -f "$venv"/.cpu "$venv"/.cuda
touch "$venv/.$set_name"
