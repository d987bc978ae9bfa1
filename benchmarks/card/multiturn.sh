#!/usr/bin/env bash
# SCoRe and MLMT-RL on one card of 141 GB with a model of about 1.5B: measure a step, fix the steps, train, evaluate.
# On 80 GB set SETTINGS_TOO=micro_tokens=6000; a micro-batch that does not fit is halved, which costs a step begun anew.
#
#   benchmarks/card/multiturn.sh MODEL DATA OUT
#
# MODEL  folder of the base, or package:NAME/FILE.gguf
# DATA   folder with mbpp.jsonl (text, code, test_list), math_train_slice.jsonl and math500.jsonl (problem, answer, solution)
# OUT    folder for what is small: reports, evaluations with every episode, metrics, times, logs, adapters in bfloat16
#
# Environment: DEADLINE (minutes from now, default 9), RUNS (default "score-code mlmt-code"; also fixed-code, rl-guided-code,
# and each with -math), MINUTES of training a run (default 8), STEPS (fixed, not measured; a multiple of 4), SETTINGS_TOO
# (further key=value, split at spaces), SEED (default 0), PIECES (such as 15M: OUT once more as archives in pieces, each
# adapter in one of its own), SMALL=1 (a rehearsal with a small model on the CPU, on ENGINE, default vllm_cpu), SHOW=1
# (print the commands, run nothing), REASONER_HOME, PYTHON.
#
# score-* (one fixed sentence), fixed-* (the feedback of an untrained writer) and rl-guided-* (of a trained one) are one
# algorithm that differs in its feedback alone: STEPS gives them equally many steps, MINUTES equally long trainings.
#
# Turns of mathematics have 1,024 tokens: with 512 four in ten first attempts were cut (docs/results/multiturn-math.md).
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
  TEST=6 MATH_TEST=6 MATH_TOO=()
else
  SETTINGS=("${CARD_ENGINE[@]}" engine.options.max_model_len=3072 engine.options.gpu_memory_utilization=0.35
    rollout_size=64 group_size=8 micro_tokens=14000 gradient_checkpointing=false max_tokens=512 guidance_max_tokens=192
    lm_lr=5e-5 guidance_lr=5e-5 save_freq=2 problems.validation_size=100)
  TEST=300 MATH_TEST=500 MATH_TOO=(max_tokens=1024 engine.options.max_model_len=4096)
fi

# pipeline NAME: the configuration that the run NAME starts from.
pipeline() {
  case $1 in
    fixed-*) echo "score-${1#fixed-}" ;;
    rl-guided-*) echo "rl-guided-score-${1#rl-guided-}" ;;
    *) echo "$1" ;;
  esac
}

# marker NAME: the run NAME with further settings is another one, whose steps are measured anew.
marker() {
  # shellcheck disable=SC2086 # however they are spaced
  local too=$(echo ${SETTINGS_TOO:-})
  [ -z "$too" ] && echo "$1" || echo "$1-$(echo "$too" | sha256sum | cut -c1-8)"
}

# settings NAME STEPS BETWEEN: everything that the run NAME sets, into the array GIVEN; BETWEEN two validations.
settings() {
  local name=$1 steps=$2 between=$3
  GIVEN=("policy_lm=$MODEL" "seed=$SEED" "${SETTINGS[@]}" "eval_freq=$between")
  case $name in
    *-code) GIVEN+=('~problems.test' "problems.train.path=$DATA/mbpp.jsonl" "problems.test_size=$TEST") ;;
    *-math) GIVEN+=("problems.train.path=$DATA/math_train_slice.jsonl" "problems.test.path=$DATA/math500.jsonl"
      "problems.test_size=$MATH_TEST" "${MATH_TOO[@]}") ;;
  esac
  case $name in
    score-* | fixed-* | rl-guided-*) GIVEN+=("stage1_steps=$((steps / 2))" "stage2_steps=$((steps / 2))") ;;
    mlmt-*) GIVEN+=("iterations=$steps") ;;
    *) echo "there is no run $name; RUNS are score-, fixed-, rl-guided- or mlmt-, and code or math" >&2 && exit 2 ;;
  esac
  [[ $name != fixed-* ]] || GIVEN+=(use_smart_corrections=true train_guidance_model=false)
  # shellcheck disable=SC2206 # several words
  GIVEN+=(${SETTINGS_TOO:-})
}

# fix_steps NAME: STEPS, or how many steps MINUTES hold, measured once, in OUT/MARKER.steps.
fix_steps() {
  local name=$1 mark
  mark=$(marker "$1")
  local file=$OUT/$mark.steps folder=$REASONER_HOME/measured/$mark
  [ -z "${STEPS:-}" ] || echo "$STEPS" >"$file"
  [ ! -s "$file" ] || return 0
  settings "$name" "$MEASURED" "$MEASURED"
  within "$PYTHON" -m flows.cli train --config-name "$(pipeline "$name")" "${GIVEN[@]}" "hydra.run.dir=$folder" \
    >"$OUT/$mark.measured.log"
  cp "$folder/logs/times-work.jsonl" "$OUT/$mark.measured.jsonl"
  rm -rf "$folder"
  "$PYTHON" benchmarks/card/steps.py "$OUT/$mark.measured.jsonl" "$MINUTES" >"$file"
}

for name in $RUNS; do
  [ -n "$SHOW" ] || fix_steps "$name"
  steps=$([ -n "$SHOW" ] && echo "${STEPS:-$MEASURED}" || cat "$OUT/$(marker "$name").steps")
  echo "# $(marker "$name"): $steps steps"
  settings "$name" "$steps" $((steps / 4))
  within "$PYTHON" -m flows.cli run "$(pipeline "$name")" "${GIVEN[@]}"
done
