# Sourced by the scripts beside it, after `here=…`: their arguments, their deadline, and what is left at the end.

[ $# -eq 3 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
MODEL=$1 DATA=$(realpath "$2") OUT=$(realpath -m "$3")
[ ! -d "$MODEL" ] || MODEL=$(realpath "$MODEL")
REASONER_HOME=$(realpath -m "${REASONER_HOME:-.reasoner}")
export REASONER_HOME
cd "$here/../.."
mkdir -p "$OUT"
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} # one card, however many there are
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}

PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
SMALL=${SMALL:-}
ENGINE=${ENGINE:-vllm_cpu} # of a rehearsal; or transformers
SEED=${SEED:-0}
PIECES=${PIECES:-}
SHOW=${SHOW:-}
RESERVE=30 # seconds for ending what runs and for collecting
DEADLINE_AT=$(awk "BEGIN { print int(${DEADLINE:-9} * 60) - $RESERVE }")

# One engine of moderate size beside the trainer: both fit, so nothing sleeps. CUDA graphs as with compute=gpu80gb.
CARD_ENGINE=(compute.one_card=false engine.options.max_num_seqs=256
  'engine.options.compilation_config={mode:0,cudagraph_mode:FULL,max_cudagraph_capture_size:1024}')

# within COMMAND…: run it, but not past the deadline, at which it gets SIGTERM and this script ends with status 3.
within() {
  local left=$((DEADLINE_AT - SECONDS)) status=0
  [ -z "$SHOW" ] || { printf '%q ' "$@" && echo && return; }
  [ "$left" -gt 0 ] || stopped
  timeout -s TERM -k 30 "$left" "$@" || status=$?
  # 124, or 137 where it had to be killed
  [ "$status" -eq 0 ] || [ "$SECONDS" -lt "$DEADLINE_AT" ] || stopped
  return "$status"
}

stopped() {
  echo "stopped by the deadline after $SECONDS s; the same command goes on" >&2
  exit 3
}

# pack NAME FOLDER TAR-OPTION…: FOLDER as OUT/pieces/NAME.tar.gz.aa, …ab and so on.
pack() {
  local name=$1 folder=$2
  shift 2
  tar -C "$folder" "$@" -cz . | split -b "$PIECES" - "$OUT/pieces/$name.tar.gz."
  echo "pieces    $(find "$OUT/pieces" -name "$name.*" -printf . | wc -c) of $OUT/pieces/$name.tar.gz.*" >&2
}

# leave: called at the end, whatever it is.
leave() {
  "$PYTHON" benchmarks/card/collect.py "$REASONER_HOME" "$OUT" || echo "not all of it was collected" >&2
  if [ -n "$PIECES" ]; then # a name's pieces together: cat NAME.tar.gz.* | tar xz
    rm -rf "$OUT/pieces" && mkdir "$OUT/pieces"
    pack results "$OUT" --exclude=./pieces --exclude=./adapters
    for folder in "$OUT"/adapters/*/; do
      [ ! -d "$folder" ] || pack "$(basename "$folder")" "$folder"
    done
  fi
  echo "results   $OUT" >&2
  echo "go on     with $REASONER_HOME/{artifacts,results,work,ledger}: docs/operations.md, Another machine" >&2
}
[ -n "$SHOW" ] || trap leave EXIT
