"""Train an ensemble as a single run; its members are runs under members/, trained one after the other."""

from dataclasses import replace

from psdenets.config import Config
from psdenets.errors import BadInput
from psdenets.models.ensemble import Ensemble, member_config
from psdenets.options.fields import flag
from psdenets.runs.directory import RunDir
from psdenets.runs.forms import read_history, read_metrics
from psdenets.runs.loading import load, read_config
from psdenets.runs.results import History, write_results
from psdenets.training.session import begin, descend, device_of
from psdenets.training.watch import Watch


def fit(config: Config, run: RunDir, watch: Watch) -> None:
    """Train all unfinished members, then combine them."""
    if config.training.start_from is not None:
        raise BadInput("expected no --start-from with an ensemble, whose members must differ, got one")
    splits = watch.splits(config)
    begin(run, config, splits)
    members = [RunDir(run.path / "members" / str(k)) for k in range(config.system.ensemble.members)]
    for k, member in enumerate(members):
        wanted = member_config(config, k, str(member.path))
        if member.holds_run:
            _require_member(member, wanted, bool(config.references))
        if member.finished:
            continue
        watch.say(f"member {k + 1} of {len(members)}\n")
        descend(wanted, member, replace(watch, resumes=run.path))
    device, own = device_of(config.device), bool(config.references)
    model = Ensemble(config, splits.spec, [load(member.path, device, allow_code=own) for member in members])
    model = model.to(device).eval()
    watch.say(write_results(run, config, model, splits.test, _joined(run, members), val=splits.val))


def _require_member(member: RunDir, wanted: Config, allow_code: bool) -> None:
    """Raise BadInput if the directory of a member holds another run, such as another member."""
    found = read_config(member.path, allow_code)[0]
    for name in ("model", "seed", "dataset", "width", "blocks"):
        ours, theirs = wanted.as_dict()[name], found.as_dict()[name]
        if ours != theirs:
            raise BadInput(f"expected a member with {flag(name)} {ours} in {member.path}, got one with {theirs}")


def _joined(run: RunDir, members: list[RunDir]) -> History:
    """The epochs of all members, concatenated, and their total training time."""
    found = [read_history(member.path) for member in members]
    records = [[{"member": k, **record} for record in lines] for k, lines in enumerate(found)]
    run.folder.write_lines("metrics.jsonl", [record for part in records for record in part])
    finals = [read_metrics(member.path, "epochs", "steps", "accuracy", "ece", "nll") for member in members]
    facts = {
        "epochs": sum(m["epochs"] for m in finals),
        "steps": sum(m["steps"] for m in finals),
        "members": [{"accuracy": m["accuracy"], "ece": m["ece"], "nll": m["nll"]} for m in finals],
    }
    return History(records[0], sum(m["seconds"] for m in finals), facts)
