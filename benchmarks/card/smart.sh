#!/usr/bin/env bash
# SMART on GSM8K on one card: one pipeline with the settings fixed here; its small results are copied to OUT.
#
#   MODEL=folder DATA=folder OUT=folder [LIMIT=1500] [CARD=0] smart.sh PIPELINE [key=value …]
#
# DATA holds gsm8k_train.jsonl and gsm8k_test.jsonl. LIMIT questions of the training set are the pool. The same command
# goes on where it was cut off, and a second pipeline in the same REASONER_HOME shares the stages that are alike, also on
# another card at the same time (smart-rft beside smart-epoch2). SMALL=1 rehearses on the CPU: 40 questions, short answers.
set -euo pipefail
: "${MODEL:?the model folder}" "${DATA:?the folder of the questions}" "${OUT:?the folder for results}"
pipeline=${1:?a pipeline, such as smart-epoch2} && shift
here=$(cd "$(dirname "$0")" && pwd)
home=${REASONER_HOME:-.reasoner}
if [ "${SMALL:-}" = 1 ]; then
  size=(
    engine=vllm_cpu compute=cpu data.pool.gsm8k.limit="${LIMIT:-40}" data.evaluation.gsm8k.limit=20
    few_shot.decoding.max_tokens=48 epoch2.decoding.max_tokens=48 evaluation.decoding.max_tokens=48
    epoch2.samples=2 epoch2.max_turn2=8 train.min_records=1 train.precision=fp32 evaluation.max_invalid_prefix=1
  )
else
  export CUDA_VISIBLE_DEVICES=${CARD:-0}
  size=(
    compute=gpu80gb data.pool.gsm8k.limit="${LIMIT:-1500}"
    engine.options.max_num_seqs=512 engine.options.max_model_len=2560
    'engine.options.compilation_config={mode:0,cudagraph_mode:FULL_DECODE_ONLY}'
    epoch2.samples=8 epoch2.keep_per_strategy=2 epoch2.max_turn2=1000
  )
fi
mkdir -p "$OUT"
status=0
reasoner run "$pipeline" model=local model.path="$MODEL" \
  data=gsm8k data.pool.gsm8k.path="$DATA/gsm8k_train.jsonl" data.evaluation.gsm8k.path="$DATA/gsm8k_test.jsonl" \
  data.validation=0.08 train.batch_size=16 train.grad_accum=1 few_shot.layout=chat \
  "${size[@]}" "$@" || status=$?
python "$here/collect.py" "$home" "$OUT" --pipeline "$pipeline"
exit $status
