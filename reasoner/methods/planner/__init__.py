"""The planner: one call that plans, a frozen worker that carries the plan out (METHODS 4).

Pure logic: `plan` reads what the planner wrote, `worker` asks the frozen base, `pipeline` joins the two,
`independence` and `reward` say what a plan was worth, `targets` and `evaluation` choose training targets and
measure. No Prefect, no torch.
"""
