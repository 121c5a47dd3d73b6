#!/usr/bin/env bash
# Tests the Python package in a build directory:  run.sh BUILD/python
# Exits with 77 (skipped) if $STRETTO_PYTHON, by default python3, lacks a package.
python=${STRETTO_PYTHON:-python3}
"$python" -c 'import numpy, pytest, torch' || { echo "Skipped: needs $python with numpy, pytest, torch"; exit 77; }
PYTHONPATH=$1 exec "$python" -m pytest -q -rs -p no:cacheprovider "$(dirname "${BASH_SOURCE[0]}")"
