"""The table and its exit status. Negative controls: integrators broken on purpose make both fail."""

import json
import re
import subprocess
import sys

import pytest
import torch

from sdeweights import grid, integrate, kl
from sdeweights.fused import solvers as fused
from sdeweights.solvers.base import OneStepSde, Sde
from sdeweights.solvers.runge_kutta import RungeKutta
from theory import Certificate, report
from theory.__main__ import main
from theory.report import Outcome


def half(times):
    """Every step half as long, as in the published code."""
    return [times[0] + (t - times[0]) / 2 for t in times]


def horizon_of_one_half(monkeypatch):
    ode, sde = RungeKutta.solve, OneStepSde.solve
    monkeypatch.setattr(RungeKutta, "solve", lambda self, f, w, times: ode(self, f, w, half(times)))
    monkeypatch.setattr(OneStepSde, "solve", lambda self, eq, w, times, noise: sde(self, eq, w, half(times), noise))


def grid_that_ends_at_one_half(monkeypatch):
    times = grid.Phase.times.fget
    monkeypatch.setattr(grid.Phase, "times", property(lambda phase: tuple(t / 2 for t in times(phase))))


def kl_without_its_half(monkeypatch):
    monkeypatch.setattr(kl, "_HALF", 1.0)


def noise_on_D_integrated_separately(monkeypatch):
    merged = integrate._merged

    def noisy(process, w_S, w_D):
        spread = w_D.expand(*w_S.shape[:-1], -1)
        return merged(process, w_S, spread + 1e-3 * torch.randn_like(spread))

    monkeypatch.setattr(integrate, "_merged", noisy)


def noise_on_D_integrated_together(monkeypatch):
    spread = Sde.spread

    def everywhere(self, x, d):
        return spread(self, x, d) + (0 if x.shape[-1] == d else 1e-3 * x[..., :1])

    monkeypatch.setattr(Sde, "spread", everywhere)


def fused_horizon_of_one_half(monkeypatch):
    steps = fused.integrate
    monkeypatch.setattr(fused, "integrate", lambda equation, w, times, dB: steps(equation, w, half(times), dB))


def fused_kl_without_its_half(monkeypatch):
    steps = fused.integrate

    def doubled(*arguments):
        states, total = steps(*arguments)
        return states, 2 * total

    monkeypatch.setattr(fused, "integrate", doubled)


def fused_noise_on_D(monkeypatch):
    steps = fused.integrate

    def noisy(equation, w, times, dB):
        states, total = steps(equation, w, times, dB)
        return states if dB is not None else states + 1e-3 * torch.randn_like(states), total

    monkeypatch.setattr(fused, "integrate", noisy)


def fused_wrong_sign_of_theta(monkeypatch):
    steps = fused.integrate
    monkeypatch.setattr(
        fused, "integrate", lambda equation, *rest: steps(equation._replace(theta=-equation.theta), *rest)
    )


MUTATIONS = {
    horizon_of_one_half: "|w_1 - w_0 - 1 - sigma B| for f_q = 1, worst, euler",
    grid_that_ends_at_one_half: "last grid point, worst of 7 cuts x 4 grids, euler",
    kl_without_its_half: "|KL - 1/2 sum_S (gap / sigma)^2 (t2 - t1)|, worst, euler",
    noise_on_D_integrated_separately: "spread of w_D over samples, split drift, euler",
    noise_on_D_integrated_together: "spread of w_D over samples, joint drift that does not mix, euler",
    fused_horizon_of_one_half: "|w_1 - w_0 - 1 - sigma B| for f_q = 1, worst, fused-euler",
    fused_kl_without_its_half: "|KL - 1/2 sum_S (gap / sigma)^2 (t2 - t1)|, worst, fused-euler",
    fused_noise_on_D: "w_D(1), f_q separated, fused-euler",
    fused_wrong_sign_of_theta: "|w_1 - closed form| for theta = 2, mu = 0.75, worst, fused-euler",
}


def failing(outcomes):
    return [c.statement for outcome in outcomes for c in outcome.certificates if not c.holds]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_broken_integrator_fails_the_report(mutate, monkeypatch, capsys):
    monkeypatch.setattr("theory.integration.PATHS", 500)
    mutate(monkeypatch)
    outcomes = report.check(["integration"])
    assert [outcome.error for outcome in outcomes] == [""]
    failed = failing(outcomes)
    assert MUTATIONS[mutate] in failed
    if mutate.__name__.startswith("fused"):  # the plain solver is not broken
        assert all(statement.endswith("fused-euler") for statement in failed)
    monkeypatch.setattr(report, "check", lambda names, seed: outcomes)
    assert main(["--claims", "integration"]) == 1
    assert "FAILS" in capsys.readouterr().out


def test_sound_integrator_passes_the_same_report(monkeypatch, capsys):
    monkeypatch.setattr("theory.integration.PATHS", 2000)
    assert main(["--claims", "integration"]) == 0
    shown = capsys.readouterr().out
    assert "FAILS" not in shown
    assert re.search(r"(\d+) of \1 certificates hold", shown)


def test_kl_without_its_half_fails_lemma_1_as_well(monkeypatch):
    monkeypatch.setattr("theory.lemma1.PATHS", 500)
    kl_without_its_half(monkeypatch)
    what = "equal diffusions: |log dq/dp - (KL + int u dB)| along 200 paths"
    assert failing(report.check(["lemma1"])) == [f"{what}, euler", f"{what}, fused-euler"]


def test_every_claim_has_a_module_that_certifies():
    for name, module in report.CLAIMS.items():
        assert callable(__import__(module, fromlist=["certify"]).certify), name


GOOD = Certificate("A", "one is one", 1.0, "==", 1.0)
BAD = Certificate("B", "one is two", float("nan"), "==", 2.0, 0.5, "no reason")


def test_status_is_1_for_a_failing_a_missing_and_a_raising_claim():
    assert report.status([Outcome("a", (GOOD,), 0.1)]) == 0
    assert report.status([Outcome("a", (GOOD, BAD), 0.1)]) == 1
    assert report.status([Outcome("a", (), 0.1)]) == 1
    assert report.status([Outcome("a", (GOOD,), 0.1, error="ValueError: no")]) == 1
    assert report.status([]) == 1


def test_a_claim_that_raises_is_shown_with_the_others(monkeypatch, capsys):
    monkeypatch.setattr("theory.integration.certify", lambda seed: [][1])
    assert main(["--claims", "integration", "complexity"]) == 1
    shown = capsys.readouterr()
    assert re.search(r"^integration +IndexError: list index out of range +ERROR$", shown.out, re.M)
    assert "24 of 24 certificates hold, errors in 1 of 2 modules" in shown.out
    assert "Traceback" in shown.err


def test_table_fits_the_width_and_names_every_number():
    text = report.table([Outcome("a", (GOOD, BAD), 0.25)], width=110)
    assert max(map(len, text.splitlines())) <= 112
    assert re.search(r"^A +one is one +1 == 1 +exact   holds$", text, re.M)
    assert re.search(r"^B +one is two +nan == 2 +5.0e-01   FAILS$", text, re.M)


def test_json_contains_the_measurements_the_seed_and_the_versions(tmp_path, capsys):
    target = tmp_path / "claims.json"
    assert main(["--claims", "complexity", "--json", str(target)]) == 0
    data = json.loads(target.read_text())
    assert data["holds"] is True
    assert data["seed"] == 0
    assert (
        data["versions"]["torch"] == torch.__version__.split("+")[0] or data["versions"]["torch"] == torch.__version__
    )
    assert len(data["claims"][0]["certificates"]) == 24
    assert (
        json.loads(report.as_json([Outcome("a", (BAD,), 0.1)], 0))["claims"][0]["certificates"][0]["measured"] == "nan"
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--claims", "lemma9"], "invalid choice: 'lemma9'"),
        (["--seed", "x"], "invalid int value: 'x'"),
        (["--json", "no/such/directory/x.json"], "expected a file in an existing directory"),
        (["--what"], "unrecognized arguments: --what"),
    ],
)
def test_invalid_arguments_give_one_line_and_status_2(arguments, line, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert line in message
    assert message.count("\n") == 1


def test_unknown_claims_raise_a_value_error():
    with pytest.raises(ValueError, match="expected claims from integration, "):
        report.check(["lemma9"])


def test_command_runs_in_its_own_process():
    done = subprocess.run([sys.executable, "-m", "theory", "--claims", "complexity"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "24 of 24 certificates hold" in done.stdout
