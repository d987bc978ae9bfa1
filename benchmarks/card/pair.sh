#!/usr/bin/env bash
# SMART and what it is compared with on two cards at the same time, then one table of both, made from the cache.
#
#   benchmarks/card/pair.sh MODEL DATA OUT
#
# MODEL, DATA and OUT as for smart.sh, which does the work: OUT/first, OUT/second, and OUT/table with all that counts.
#
# Environment: FIRST (default smart-epoch2) runs on the first of CARDS (default "0 1"), SECOND (default smart-rft) on the
# other; DEADLINE (minutes from now, default 9) for all of it; REASONER_HOME, SETTINGS_TOO, LIMIT, SEED, PIECES, SMALL,
# SHOW and ENGINE as for smart.sh.
#
# It ends at the deadline with status 3, and the same command goes on. Status 0: the table is made.
set -euo pipefail
[ $# -eq 3 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
smart=$(dirname "$0")/smart.sh out=$3
FIRST=${FIRST:-smart-epoch2} SECOND=${SECOND:-smart-rft} DEADLINE=${DEADLINE:-9}
read -r one other <<<"${CARDS:-0 1}"
mkdir -p "$out"

left() { awk "BEGIN { print $DEADLINE - $SECONDS / 60 }"; }

on() { # CARD RUNS FOLDER MINUTES
  CUDA_VISIBLE_DEVICES=$1 RUNS=$2 DEADLINE=$4 "$smart" "$MODEL" "$DATA" "$out/$3"
}

MODEL=$1 DATA=$2 worst=0
on "$one" "$FIRST" first "$(left)" >"$out/first.log" 2>&1 &
first=$!
on "$other" "$SECOND" second "$(left)" >"$out/second.log" 2>&1 &
second=$!
trap 'kill $first $second 2>/dev/null' INT TERM
for job in $first $second; do
  status=0
  wait "$job" || status=$?
  [ "$status" -le "$worst" ] || worst=$status
done
[ -z "${SHOW:-}" ] || cat "$out/first.log" "$out/second.log"
if [ "$worst" -ne 0 ]; then
  tail -n 5 "$out/first.log" "$out/second.log" >&2
  exit "$worst"
fi
on "$one" "$FIRST $SECOND" table "$(left)"
