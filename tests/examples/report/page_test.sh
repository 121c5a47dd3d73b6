#!/usr/bin/env bash
# browser_test.py and page_test.py, where there is a Python for them.
if ! command -v python3 >/dev/null; then
  echo "No python3 is here: pages were not looked at"
  exit 77
fi
folder=$(dirname "${BASH_SOURCE[0]}")
python3 "$folder/browser_test.py" || exit 1
exec python3 "$folder/page_test.py" "$@"
