#!/usr/bin/env bash
# The planner on one 80 GB card with a model of about 1.5B: warm start, GRPO, the five arms on GSM8K's test.
#
#   benchmarks/card/planner.sh MODEL DATA OUT
#
# MODEL  folder of the base, or package:NAME/FILE.gguf
# DATA   folder with gsm8k_train.jsonl and gsm8k_test.jsonl (question, answer); where math500.jsonl lies there, too, its
#        questions with a number for an answer are evaluated as well
# OUT    folder for what is small: reports, evaluations with every plan, metrics, logs, the adapter in bfloat16
#
# Environment: DEADLINE (minutes from now, default 9), STEPS of GRPO (default 100), RUNS (default planner-grpo, which holds
# the warm start; planner-sft evaluates it alone), SETTINGS_TOO (further key=value, split at spaces), SEED (default 0),
# PIECES (such as 15M: OUT once more as archives in pieces, each adapter in one of its own), SMALL=1 (a rehearsal with a
# small model and generated training problems on the CPU, on ENGINE, default vllm_cpu), SHOW=1 (print the commands, run
# nothing), REASONER_HOME, PYTHON.
#
# As many split as whole plans in the warm start, and no side terms where all plans are right, since GRPO came to split
# nothing without them (docs/results/planner-gsm8k.md).
#
# A warm start goes on to GRPO from 70 % valid plans, so that the card's time is not lost; whether it reached the 95 % that
# METHODS 4.6 asks stands in report.md. The worker has 512 tokens: with 384 every fifth split plan had a call cut.
#
# It ends at the deadline with status 3, and the same command goes on; on another machine with what docs/operations.md
# names. Status 0: all is complete.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/common.sh"

if [ -n "$SMALL" ]; then
  RUNS=${RUNS:-planner-sft planner-grpo}
  SETTINGS=(data=demo-small data.pool.word_problems.limit=40 data.held_out=0.1
    "+data.evaluation.gsm8k={path: $DATA/gsm8k_test.jsonl, columns: {question: [question], answer: answer}, answer_format: hash_marks, limit: 4}"
    "engine=$ENGINE" engine.options.max_model_len=2048 '~grpo.engine.gpu_memory_utilization'
    prompt.template=demo worker.decoding.max_tokens=64 sft.samples=2 sft.decoding.max_tokens=96 sft.min_parse_rate=0
    sft.train.lr=1e-3 sft.train.epochs=2 sft.train.batch_size=4 sft.train.grad_accum=1 sft.train.max_length=512
    sft.train.min_records=1 grpo.lr=1e-4 grpo.batch_size=4 grpo.grad_accum=2 grpo.num_generations=4
    'grpo.pass_rate=[0,1]' grpo.max_prompt_length=400 grpo.max_completion_length=96 grpo.logging_steps=1 grpo.save_steps=1
    "grpo.max_steps=${STEPS:-3}" grpo.gate=0.2 evaluation.decoding.max_tokens=96)
else
  RUNS=${RUNS:-planner-grpo}
  SETTINGS=(data=gsm8k "data.pool.gsm8k.path=$DATA/gsm8k_train.jsonl" data.pool.gsm8k.limit=1000
    "data.evaluation.gsm8k.path=$DATA/gsm8k_test.jsonl" "${CARD_ENGINE[@]}" engine.options.max_model_len=3072
    engine.options.max_num_seqs=512 grpo.engine.gpu_memory_utilization=0.35 grpo.gradient_checkpointing=false
    worker.decoding.max_tokens=512 sft.samples=2 sft.min_parse_rate=0.7 sft.train.epochs=3
    sft.train.batch_size=16 sft.train.grad_accum=1
    sft.balance_decisions=true reward.mask_all_correct_side_terms=true
    'grpo.pass_rate=[0.1,0.9]' grpo.lr=2e-5 grpo.max_prompt_length=768 grpo.max_completion_length=256
    grpo.logging_steps=1 grpo.save_steps=5 "grpo.max_steps=${STEPS:-100}" evaluation.decoding.max_tokens=256)
fi

if [ -f "$DATA/math500.jsonl" ]; then
  SETTINGS+=(+data/source@data.evaluation.math500=math500 "data.evaluation.math500.path=$DATA/math500.jsonl")
  [ -z "$SMALL" ] || SETTINGS+=(data.evaluation.math500.limit=4)
fi

for name in $RUNS; do
  # shellcheck disable=SC2086 # several words
  within "$PYTHON" -m flows.cli run "$name" model=local "model.path=$MODEL" "seed=$SEED" "${SETTINGS[@]}" ${SETTINGS_TOO:-}
done
