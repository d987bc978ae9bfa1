#!/usr/bin/env bash
# SMART on GSM8K on one 80 GB card with a model of about 1.5B: pipelines one after another, or one a card at the same time.
#
#   benchmarks/card/smart.sh MODEL DATA OUT
#
# MODEL  folder of the base, or package:NAME/FILE.gguf
# DATA   folder with gsm8k_train.jsonl and gsm8k_test.jsonl (question, answer)
# OUT    folder for what is small: reports, evaluations, answers, logs, adapters in bfloat16
#
# Environment: DEADLINE (minutes from now, default 9), RUNS (default smart-epoch2; also smart-rft, smart-shuffled-labels, …:
# in one REASONER_HOME they share the stages that are alike, also while the other is running on another card), LIMIT
# (questions of the pool, default 1500), SETTINGS_TOO (further key=value, split at spaces), SEED (default 0), PIECES (such as
# 15M: OUT once more as an archive in pieces), SMALL=1 (a rehearsal with a small model and
# generated training problems on the CPU), SHOW=1 (print the commands, run nothing),
# ENGINE of the rehearsal, REASONER_HOME, PYTHON, and CUDA_VISIBLE_DEVICES for the card.
#
# It ends at the deadline with status 3, and the same command goes on; on another machine with what docs/operations.md
# names. Status 0: all is complete.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/common.sh"

if [ -n "$SMALL" ]; then
  SETTINGS=(data=demo-small "+data.evaluation.gsm8k={path: $DATA/gsm8k_test.jsonl, columns: {question: [question], answer: answer}, answer_format: hash_marks, limit: 4}"
    "engine=$ENGINE" compute.micro_batch=4 prompt.template=demo few_shot.exemplars=demo few_shot.shots=6
    few_shot.decoding.max_tokens=64 epoch2.decoding.max_tokens=64 evaluation.decoding.max_tokens=64 epoch2.samples=2
    train.lr=1e-3 train.batch_size=4 train.grad_accum=1 train.max_length=512 train.min_records=4
    evaluation.max_invalid_prefix=1)
else
  SETTINGS=(data=gsm8k "data.pool.gsm8k.path=$DATA/gsm8k_train.jsonl" "data.pool.gsm8k.limit=${LIMIT:-1500}"
    "data.evaluation.gsm8k.path=$DATA/gsm8k_test.jsonl" data.validation=0.08 few_shot.layout=chat
    compute=gpu80gb engine.options.max_num_seqs=512 engine.options.max_model_len=2560
    'engine.options.compilation_config={mode:0,cudagraph_mode:FULL_DECODE_ONLY}'
    train.batch_size=16 train.grad_accum=1 epoch2.samples=8 epoch2.keep_per_strategy=2 epoch2.max_turn2=1000)
fi

for name in ${RUNS:-smart-epoch2}; do
  # shellcheck disable=SC2086 # several words
  within "$PYTHON" -m flows.cli run "$name" model=local "model.path=$MODEL" "seed=$SEED" "${SETTINGS[@]}" ${SETTINGS_TOO:-}
done
