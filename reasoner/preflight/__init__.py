"""What is checked before a training, in seconds: each gate one function that raises one line with what to do.

| gate | function | where the run calls it |
|---|---|---|
| chat template keeps what it has rendered | `template.require_prefix` | `stages.training`, before the program |
| the end token stops a generation | `template.require_stop` | `training.sft` |
| loss mask: end token in it, not empty, only the completion | `mask.check_batches` | every trainer, on its batches |
| packing only with variable-length attention | `training.packing.choose` | `training.sft` |
| memory and disk | `room.require_room` | `training.sft`, with the longest record |
| one reward a completion | `rewards.require_one_each` | the planner's reward function, each step |
| log-probability drift | `onpolicy.gate.Gate`, `training.multiturn.gate.LoopGate` | each step of an on-policy run |

`check.examine` calls the same functions for `reasoner plan NAME --check`.
"""
