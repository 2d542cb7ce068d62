#!/bin/sh
# Judges a WebSocket server by the Autobahn suite: run.sh URL FOLDER, where the folder is for its report. Prints how many cases came
# out in which way, and those that came out badly. Cases on speed (9) and on compression (12, 13), which is not offered, are left out.
set -eu
url=$1
out=$2
packages=$(dirname "$(realpath "$0")")/packages
mkdir -p "$out"
cat >"$out/autobahn.json" <<END
{"outdir": "$out/report", "servers": [{"agent": "ours", "url": "$url"}], "cases": ["*"], "exclude-cases": ["9.*", "12.*", "13.*"], "exclude-agent-cases": {}}
END
# The suite is of the time of Python 2.7.
PYENV_VERSION=${PYENV_VERSION:-2.7.18} PYTHONPATH=$packages PYTHONDONTWRITEBYTECODE=1 python2 -c "
from autobahntestsuite.wstest import run
import sys
sys.argv = ['wstest', '-m', 'fuzzingclient', '-s', '$out/autobahn.json']
run()" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
python3 - "$out/report/index.json" <<'END'
import collections, json, sys
cases = next(iter(json.load(open(sys.argv[1])).values()))
count = collections.Counter(case["behavior"] for case in cases.values())
print(", ".join(f"{count[behavior]} {behavior}" for behavior in sorted(count)))
bad = [name for name, case in cases.items()
       if not {case["behavior"], case["behaviorClose"]} <= {"OK", "NON-STRICT", "INFORMATIONAL"}]
print(f"{len(cases)} cases, {len(bad)} of them bad", *bad)
sys.exit(bool(bad))
END
