#!/usr/bin/env bash
# SCoRe and MLMT-RL on one 80 GB card with a model of about 1.5B: measure a step, fix the steps, train, evaluate.
#
#   benchmarks/card/multiturn.sh MODEL DATA OUT
#
# MODEL  folder of the base, or package:NAME/FILE.gguf
# DATA   folder with mbpp.jsonl (text, code, test_list), math_train_slice.jsonl and math500.jsonl (problem, answer, solution)
# OUT    folder for what is small: reports, evaluations with every episode, metrics, times, logs, adapters in bfloat16
#
# Environment: DEADLINE (minutes from now, default 9), RUNS (default "score-code mlmt-code"; also score-math, mlmt-math),
# MINUTES of training a run (default 8), STEPS (fixed, not measured; a multiple of 4), SEED (default 0), PIECES (such as
# 15M: OUT once more as archives in pieces, each adapter in one of its own), SMALL=1 (a rehearsal with a small model on
# the CPU, on ENGINE, default vllm_cpu), SHOW=1 (print the commands, run nothing), REASONER_HOME, PYTHON.
#
# It ends at the deadline with status 3, and the same command goes on; on another machine with what docs/operations.md
# names, and with OUT/*.steps. Status 0: all runs are complete.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/common.sh"

RUNS=${RUNS:-score-code mlmt-code}
MINUTES=${MINUTES:-${SMALL:+1}}
MINUTES=${MINUTES:-8}
MEASURED=4 # iterations that are timed; the first one does not count

if [ -n "$SMALL" ]; then
  SETTINGS=("engine=$ENGINE" '~engine.options.gpu_memory_utilization' engine.options.max_model_len=4096
    rollout_size=4 group_size=2 batch_size=4 max_tokens=40 guidance_max_tokens=24 save_freq=1
    problems.train.limit=60 problems.validation_size=4)
  TEST=6 MATH_TEST=6
else
  SETTINGS=("${CARD_ENGINE[@]}" engine.options.max_model_len=3072 engine.options.gpu_memory_utilization=0.35
    rollout_size=64 group_size=8 batch_size=4 gradient_checkpointing=false max_tokens=512 guidance_max_tokens=192
    lm_lr=5e-5 guidance_lr=5e-5 save_freq=2 problems.validation_size=100)
  TEST=300 MATH_TEST=500
fi

# settings NAME STEPS BETWEEN: everything that the run NAME sets, into the array GIVEN; BETWEEN two validations.
settings() {
  local name=$1 steps=$2 between=$3
  GIVEN=("policy_lm=$MODEL" "seed=$SEED" "${SETTINGS[@]}" "eval_freq=$between")
  case $name in
    *-code) GIVEN+=('~problems.test' "problems.train.path=$DATA/mbpp.jsonl" "problems.test_size=$TEST") ;;
    *-math) GIVEN+=("problems.train.path=$DATA/math_train_slice.jsonl" "problems.test.path=$DATA/math500.jsonl"
      "problems.test_size=$MATH_TEST") ;;
  esac
  case $name in
    score-*) GIVEN+=("stage1_steps=$((steps / 2))" "stage2_steps=$((steps / 2))") ;;
    mlmt-*) GIVEN+=("iterations=$steps") ;;
  esac
}

# fix_steps NAME: STEPS, or how many steps MINUTES hold, measured once, in OUT/NAME.steps.
fix_steps() {
  local name=$1 file=$OUT/$1.steps folder=$REASONER_HOME/measured/$1
  [ -z "${STEPS:-}" ] || echo "$STEPS" >"$file"
  [ ! -s "$file" ] || return 0
  settings "$name" "$MEASURED" "$MEASURED"
  within "$PYTHON" -m flows.cli train --config-name "$name" "${GIVEN[@]}" "hydra.run.dir=$folder" >"$OUT/$name.measured.log"
  cp "$folder/logs/times-work.jsonl" "$OUT/$name.measured.jsonl"
  rm -rf "$folder"
  "$PYTHON" benchmarks/card/steps.py "$OUT/$name.measured.jsonl" "$MINUTES" >"$file"
}

for name in $RUNS; do
  [ -n "$SHOW" ] || fix_steps "$name"
  steps=$([ -n "$SHOW" ] && echo "${STEPS:-$MEASURED}" || cat "$OUT/$name.steps")
  echo "# $name: $steps steps"
  settings "$name" "$steps" $((steps / 4))
  within "$PYTHON" -m flows.cli run "$name" "${GIVEN[@]}"
done
