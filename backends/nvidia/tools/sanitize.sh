#!/usr/bin/env bash
# Run sanitize.py, and tests of kernels that copy blocks and multiply by warpgroups, under each tool of compute-sanitizer.
# usage: sanitize.sh [SANITIZER [PYTHON]]; TOOLS names the tools, OPTIONS goes to the sanitizer, ARGUMENTS to sanitize.py.
# Exit status: 0 where all are clean, else that of the last tool that was not (9: it reported an error, 1: a result was wrong).
set -u
sanitizer=${1:-compute-sanitizer} python=${2:-python3} status=0 folder=$(dirname "$0")
command -v "$sanitizer" >/dev/null || { echo "$sanitizer was not found: it comes with the CUDA toolkit; name it: make gpu-sanitize SANITIZER=..." >&2; exit 127; }
for tool in ${TOOLS:-memcheck racecheck synccheck}; do
    echo "== $tool"
    # shellcheck disable=SC2086
    checked=("$sanitizer" --tool "$tool" --error-exitcode 9 ${OPTIONS:-} "$python")
    # shellcheck disable=SC2086
    "${checked[@]}" "$folder/sanitize.py" ${ARGUMENTS:-} || status=$?
    "${checked[@]}" -m pytest -q -n 0 -m gpu "$folder"/../tests/test_gpu_{raised,hopper}.py -k "200 or persistent" || status=$?
done
exit $status
