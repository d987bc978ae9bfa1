"""The planner's page. Wrong if a warm start below 95 % valid plans is not told as one."""

import pytest

from reasoner.report.planner import PlannerReport, plain_lines, render


@pytest.mark.parametrize(
    ("valid", "outputs", "said"),
    [
        (95, 100, "95 of 100 outputs on the validation questions are valid plans (95.0%): 95% reached."),
        (
            189,
            200,
            "189 of 200 outputs on the validation questions are valid plans (94.5%): 95% not reached.",
        ),
        (0, 0, "0 of 0 outputs on the validation questions are valid plans: nothing was measured."),
    ],
)
def test_the_share_of_valid_plans_after_the_warm_start_is_told(valid: int, outputs: int, said: str) -> None:
    report = PlannerReport(
        title="t", targets={"targets": 3}, gate={"valid": valid, "outputs": outputs, "decomposed": 0}
    )
    assert said in render(report).replace("\\", "")
    assert any(said in line for line in plain_lines(report))
