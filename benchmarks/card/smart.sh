#!/usr/bin/env bash
# SMART on GSM8K on one 80 GB card with a model of about 1.5B: pipelines one after another, or one a card at the same time.
#
#   benchmarks/card/smart.sh MODEL DATA OUT
#
# MODEL  folder of the base, or package:NAME/FILE.gguf
# DATA   folder with gsm8k_train.jsonl and gsm8k_test.jsonl (question, answer); where svamp.jsonl, asdiv.jsonl and
#        multiarith.jsonl (or mawps_multiarith.jsonl) lie there, too, they are evaluated as well
# OUT    folder for what is small: reports, evaluations, answers, logs, adapters in bfloat16
#
# Environment: DEADLINE (minutes from now, default 9), RUNS (default smart-epoch2; also smart-grpo, smart-rft,
# smart-shuffled-labels, …: in one REASONER_HOME they share the stages that are alike, also while the other is running on
# another card; after several, smart-epoch2 once more from the cache with the others as its variants, so that one table has
# them all with paired tests), LIMIT (questions of the pool, default 2500), SETS (which further sets,
# default "svamp asdiv multiarith": 3,900 questions beside GSM8K's 1,319; none with SETS=), STEPS (of smart-grpo, default 100), SETTINGS_TOO
# (further key=value, split at spaces), TUNE=1 (to choose settings: evaluation on about 1,000 further training questions
# instead of the test set), SEED (default 0), PIECES (such as 15M: OUT once more as an archive in pieces), SMALL=1 (a
# rehearsal with a small model and generated training problems on the CPU), SHOW=1 (print the commands, run nothing), ENGINE
# of the rehearsal, REASONER_HOME, PYTHON, and CUDA_VISIBLE_DEVICES for the card.
#
# It ends at the deadline with status 3, and the same command goes on; on another machine with what docs/operations.md
# names. Status 0: all is complete. Why these settings, and what they should give: docs/results/LOG.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/common.sh"

RUNS=${RUNS:-smart-epoch2}
QUESTIONS=${LIMIT:-2500} SAMPLES=6 SECOND_TURNS=800 TUNE=${TUNE:-} HELD_OUT=1000
if [ -n "$SMALL" ]; then
  QUESTIONS=120 SAMPLES=2 SECOND_TURNS=40
  SETTINGS=(data=demo-small "+data.evaluation.gsm8k={path: $DATA/gsm8k_test.jsonl, columns: {question: [question], answer: answer}, answer_format: hash_marks, limit: 4}"
    "engine=$ENGINE" compute.micro_batch=4 prompt.template=demo few_shot.exemplars=demo few_shot.shots=6
    few_shot.decoding.max_tokens=64 epoch2.decoding.max_tokens=64 evaluation.decoding.max_tokens=64
    train.lr=1e-3 train.batch_size=4 train.grad_accum=1 train.max_length=512 train.min_records=4
    train.save_steps=4 evaluation.max_invalid_prefix=1)
else
  # Many questions with few samples each, before few questions with many. Epoch 1 need only teach the form. A step of 32
  # records in one micro-batch, since a step of 16 waits for the host; lr as the original's 2e-4 times the root of 2.
  SETTINGS=(data=gsm8k "data.pool.gsm8k.path=$DATA/gsm8k_train.jsonl" data.validation=0.08 few_shot.layout=chat
    compute=gpu80gb compute.micro_batch=32 engine.options.max_num_seqs=512 engine.options.max_model_len=2560
    epoch1.max_records=3000 epoch1.refine_pairs=one_random epoch2.keep_per_strategy=2 epoch2.max_records=9000
    train.batch_size=32 train.grad_accum=1 train.lr=3e-4 train_later.lr=2e-4 train.save_steps=50 train.eval_steps=50
    evaluation.second_turn=last)
  if [ -n "$TUNE" ]; then
    share=$(awk "BEGIN { print $HELD_OUT / ($QUESTIONS + $HELD_OUT) }")
    SETTINGS+=("data.pool.gsm8k.limit=$((QUESTIONS + HELD_OUT))" "data.held_out=$share" '~data.evaluation.gsm8k')
  else
    SETTINGS+=("data.pool.gsm8k.limit=$QUESTIONS" "data.evaluation.gsm8k.path=$DATA/gsm8k_test.jsonl")
  fi
fi
if [ -z "$TUNE" ]; then
  for set in ${SETS-svamp asdiv multiarith}; do
    for file in "$DATA/$set.jsonl" "$DATA/mawps_$set.jsonl"; do
      [ -f "$file" ] || continue
      SETTINGS+=("+data/source@data.evaluation.$set=$set" "data.evaluation.$set.path=$file")
      [ -z "$SMALL" ] || SETTINGS+=("data.evaluation.$set.limit=4")
      break
    done
  done
fi
# Engine and trainer side by side, both awake; answers of a trained policy are short.
GRPO=("grpo.max_steps=${STEPS:-100}" grpo.engine.gpu_memory_utilization=0.35 grpo.share_card=false
  grpo.gradient_checkpointing=false grpo.batch_size=16 grpo.grad_accum=4 grpo.max_completion_length=320)
[ -z "$SMALL" ] || GRPO=("grpo.max_steps=${STEPS:-2}" grpo.batch_size=4 grpo.grad_accum=2 grpo.num_generations=4
  grpo.max_completion_length=64 grpo.save_steps=1 grpo.gate=0.2 grpo.gradient_checkpointing=false)
SETTINGS+=("epoch2.samples=$SAMPLES" "epoch2.max_turn2=$SECOND_TURNS")
# Rejection sampling draws as many samples as SMART: three few-shot ones, first turns, and its share of the second turns.
EQUAL=$(((QUESTIONS * (3 + SAMPLES) + SECOND_TURNS * SAMPLES + QUESTIONS / 2) / QUESTIONS))

# own NAME: the settings by which the run NAME differs from smart-epoch2, one a line.
own() {
  local control=${1#smart-}
  case $1 in
    smart-epoch2) ;;
    smart-rft) printf '%s\n' control=rft "control.samples=$EQUAL" control.keep=6 ;;
    smart-grpo) printf '%s\n' grpo.enabled=true "${GRPO[@]}" ;;
    *) echo "control=${control//-/_}" ;;
  esac
}

# alone NAME: what a processor's engine does not take, and smart-grpo has by itself.
alone() {
  [ -z "$SMALL" ] || [ "$1" != smart-grpo ] || echo '~grpo.engine.gpu_memory_utilization'
}

run() { # NAME OVERRIDE…
  # shellcheck disable=SC2086 # several words
  within "$PYTHON" -m flows.cli run "$1" model=local "model.path=$MODEL" "seed=$SEED" "${SETTINGS[@]}" "${@:2}" ${SETTINGS_TOO:-}
}

variants=
for name in $RUNS; do
  mapfile -t words < <(own "$name")
  # shellcheck disable=SC2046 # one word or none
  run "$name" "${words[@]}" $(alone "$name")
  [ "$name" = smart-epoch2 ] && continue
  quoted=$(printf ',"%s"' "${words[@]}")
  variants+="${variants:+,}${name#smart-}:[${quoted:1}]"
done
case " $RUNS " in
  *" smart-epoch2 "*) [ -z "$variants" ] || run smart-epoch2 "variants={$variants}" ;;
esac
