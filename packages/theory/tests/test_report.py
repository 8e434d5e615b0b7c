"""The table and its exit status; integrators broken on purpose make them fail."""

import json
import re
import subprocess
import sys

import pytest
import torch

from sdeweights import grid, integrate, kl
from sdeweights.solvers.base import OneStepSde, Sde
from sdeweights.solvers.runge_kutta import RungeKutta
from theory import Certificate, report
from theory.__main__ import main
from theory.report import Outcome


def horizon_of_one_half(monkeypatch):
    """Every step half as long, the grid as before: what the published code does."""
    ode, sde = RungeKutta.solve, OneStepSde.solve
    half = lambda times: [times[0] + (t - times[0]) / 2 for t in times]  # noqa: E731
    monkeypatch.setattr(RungeKutta, "solve", lambda self, f, w, times: ode(self, f, w, half(times)))
    monkeypatch.setattr(OneStepSde, "solve", lambda self, eq, w, times, noise: sde(self, eq, w, half(times), noise))


def grid_that_ends_at_one_half(monkeypatch):
    times = grid.Phase.times.fget
    monkeypatch.setattr(grid.Phase, "times", property(lambda phase: tuple(t / 2 for t in times(phase))))


def kl_without_its_half(monkeypatch):
    monkeypatch.setattr(kl, "integrand", lambda u: (u * u).sum(-1))


def noise_on_D_integrated_apart(monkeypatch):
    merged = integrate._merged

    def noisy(process, w_S, w_D):
        return merged(process, w_S, w_D + 1e-3 * torch.randn(*w_S.shape[:-1], w_D.shape[-1]))

    monkeypatch.setattr(integrate, "_merged", noisy)


def noise_on_D_integrated_together(monkeypatch):
    spread = Sde.spread

    def everywhere(self, x, d):
        return spread(self, x, d) + (0 if x.shape[-1] == d else 1e-3 * x[..., :1])

    monkeypatch.setattr(Sde, "spread", everywhere)


MUTATIONS = {
    horizon_of_one_half: "|w_1 - w_0 - 1| for f_q = 1, noise 1e-12",
    grid_that_ends_at_one_half: "last grid point, worst of 7 cuts x 4 grids",
    kl_without_its_half: "|kl - 1/2 |S| (gap / sigma)^2 (t2 - t1)|, worst",
    noise_on_D_integrated_apart: "spread of w_D over samples, split drift",
    noise_on_D_integrated_together: "spread of w_D over samples, joint drift that does not mix",
}


def failing(outcomes):
    return [c.statement for outcome in outcomes for c in outcome.certificates if not c.holds]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_broken_integrator_fails_the_report(mutate, monkeypatch, capsys):
    monkeypatch.setattr("theory.integration.PATHS", 2000)
    mutate(monkeypatch)
    outcomes = report.check(["integration"])
    assert [outcome.error for outcome in outcomes] == [""]
    assert MUTATIONS[mutate] in failing(outcomes)
    assert report.status(outcomes) == 1
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
    assert failing(report.check(["lemma1"])) == ["equal diffusions: |log dq/dp - (kl + int u dB)| along 200 paths"]


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


def test_a_claim_that_raises_is_shown_beside_the_others(monkeypatch, capsys):
    monkeypatch.setattr("theory.integration.certify", lambda seed: [][1])
    assert main(["--claims", "integration", "complexity"]) == 1
    shown = capsys.readouterr()
    assert re.search(r"^integration +IndexError: list index out of range +ERROR$", shown.out, re.M)
    assert "12 of 12 certificates hold, 1 modules ended in an error" in shown.out
    assert "Traceback" in shown.err


def test_table_fits_the_width_and_names_every_number():
    text = report.table([Outcome("a", (GOOD, BAD), 0.25)], width=110)
    assert max(map(len, text.splitlines())) <= 112
    assert re.search(r"^A +one is one +1 == 1 +exact   holds$", text, re.M)
    assert re.search(r"^B +one is two +nan == 2 +5.0e-01   FAILS$", text, re.M)


def test_json_says_what_was_measured_and_by_what(tmp_path, capsys):
    target = tmp_path / "claims.json"
    assert main(["--claims", "complexity", "--json", str(target)]) == 0
    data = json.loads(target.read_text())
    assert data["holds"] is True
    assert data["seed"] == 0
    assert (
        data["versions"]["torch"] == torch.__version__.split("+")[0] or data["versions"]["torch"] == torch.__version__
    )
    assert len(data["claims"][0]["certificates"]) == 12
    assert (
        json.loads(report.as_json([Outcome("a", (BAD,), 0.1)], 0))["claims"][0]["certificates"][0]["measured"] == "nan"
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--claims", "lemma9"], "invalid choice: 'lemma9'"),
        (["--seed", "x"], "invalid int value: 'x'"),
        (["--json", "no/such/folder/x.json"], "expected a file in a folder that exists"),
        (["--what"], "unrecognized arguments: --what"),
    ],
)
def test_bad_arguments_are_one_line_and_status_2(arguments, line, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert line in message
    assert message.count("\n") == 1


def test_unknown_claims_are_refused_by_the_function_too():
    with pytest.raises(ValueError, match="expected claims out of integration, "):
        report.check(["lemma9"])


def test_command_runs_in_a_process_of_its_own():
    done = subprocess.run([sys.executable, "-m", "theory", "--claims", "complexity"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "12 of 12 certificates hold" in done.stdout
