"""Sessions: `nox -s tests`, `nox -s lint`, ... Each installs what it needs, with the versions in constraints.txt."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2024.4"
nox.options.sessions = ["tests", "lint", "types"]

ROOT = Path(__file__).parent
PACKAGES = ("sdeweights", "bnneval", "psdenets", "theory")
SIBLINGS = {"sdeweights": (), "bnneval": (), "psdenets": ("bnneval", "sdeweights"), "theory": ("sdeweights",)}
CONSTRAINTS = ("--constraint", str(ROOT / "constraints.txt"))
ROOT_TESTS = [f"tests/{path.name}" for path in sorted((ROOT / "tests").glob("test_*.py"))]  # tests/browser: see page
LINTERS = ("ruff>=0.9",)


def install(session: nox.Session, *packages: str, extra: str = "test") -> None:
    """Install packages of this clone with the extra that their tests need."""
    session.install(*CONSTRAINTS, *(f"{ROOT / 'packages' / name}[{extra}]" for name in packages))


def test_folders(*packages: str) -> list[str]:
    """The test folders of those packages that have tests."""
    return [
        f"packages/{name}/tests" for name in packages if any((ROOT / "packages" / name / "tests").glob("test_*.py"))
    ]


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests of all packages (arguments are passed to pytest)."""
    install(session, *PACKAGES)
    session.install(*CONSTRAINTS, "torchmetrics>=1.4")  # an independent reference for some metrics
    session.run("pytest", "-m", "not deep", *ROOT_TESTS, *test_folders(*PACKAGES), *session.posargs)


@nox.session
@nox.parametrize("package", PACKAGES)
def alone(session: nox.Session, package: str) -> None:
    """Install each package by itself in an empty environment, import it and run its own tests."""
    session.install(*CONSTRAINTS, str(ROOT / "packages" / package))
    session.run("python", "-c", f"import {package}")
    installed = json.loads(str(session.run("pip", "inspect", silent=True, log=False)))["installed"]
    found = {entry["metadata"]["name"]: entry.get("direct_url", {}).get("url", "an index") for entry in installed}
    for sibling in (package, *SIBLINGS[package]):
        origin = (ROOT / "packages" / sibling).as_uri()
        if found.get(sibling) != origin:
            session.error(f"{sibling} came from {found.get(sibling, 'nowhere')}, expected {origin}")
    for stranger in set(PACKAGES) - {package, *SIBLINGS[package]}:
        if stranger in found:
            session.error(f"{package} installed {stranger}, which it does not need")
    install(session, package)
    if test_folders(package):
        session.run("pytest", "-m", "not deep", *test_folders(package), *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and plain English."""
    session.install(*LINTERS)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", "tools/plain_english.py")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of all packages, strictly."""
    install(session, *PACKAGES)
    session.install(*CONSTRAINTS, "mypy>=1.11")
    for name in PACKAGES:
        session.run("mypy", f"packages/{name}/src")


@nox.session
def deep(session: nox.Session) -> None:
    """Run the long tests too: 2,000 hypothesis examples per property, and statistical tests that take minutes."""
    install(session, *PACKAGES)
    session.install(*CONSTRAINTS, "torchmetrics>=1.4")
    session.run("pytest", *test_folders(*PACKAGES), *session.posargs, env={"HYPOTHESIS_PROFILE": "deep"})


@nox.session
def bench(session: nox.Session) -> None:
    """Measure time and memory; `nox -s bench -- --quick` takes minutes (arguments are passed to psdenets' bench.py)."""
    install(session, *PACKAGES)
    session.run("python", "packages/sdeweights/benchmarks/bench_memory.py")
    session.run("python", "packages/psdenets/benchmarks/bench.py", *session.posargs)


@nox.session
def drills(session: nox.Session) -> None:
    """Damage the files of run directories in hundreds of ways and use them (arguments: --cases N --seed K)."""
    install(session, "psdenets")
    session.run("python", "packages/psdenets/drills/corruptions.py", *session.posargs)


@nox.session
def train(session: nox.Session) -> None:
    """Train a classifier: `nox -s train -- --cut horizontal --epochs 5`."""
    install(session, "psdenets")
    session.run("python", "-m", "psdenets.train", *session.posargs)


@nox.session
def examples(session: nox.Session) -> None:
    """Run all scripts in examples/, in a few minutes."""
    install(session, *PACKAGES)
    folder = Path(session.create_tmp())
    for script in sorted((ROOT / "examples").glob("*.py")):
        shutil.rmtree(folder / script.stem, ignore_errors=True)
        session.run("python", str(script), str(folder / script.stem))


@nox.session
def page(session: nox.Session) -> None:
    """Test the report of a run in headless Chromium; installs Debian's Chromium if it is missing."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        session.run("apt-get", "install", "-y", "-qq", "chromium", "chromium-driver", external=True)
    install(session, "psdenets")
    session.install("selenium>=4.20")
    picture = Path(session.create_tmp()) / "report.png"
    session.run("pytest", "tests/browser", *session.posargs, env={"PAGE_PICTURE": str(picture)})
    print(f"pictures: {os.path.relpath(picture.parent, ROOT)}/report-*.png")


@nox.session
def pictures(session: nox.Session) -> None:
    """Regenerate the figures of the README with the commands shown there."""
    install(session, "psdenets")
    session.install("pyte>=0.8")
    session.run("python", "docs/pictures.py")


@nox.session
def results(session: nox.Session) -> None:
    """Write RESULTS.md from results.json, both in docs/; trains first with `-- --train NAME... --data-root DIR`."""
    install(session, "psdenets")
    session.run("python", "docs/results.py", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Measure which lines and branches the tests execute."""
    install(session, *PACKAGES)
    session.install(*CONSTRAINTS, "torchmetrics>=1.4", "coverage[toml]>=7.6")
    session.run("coverage", "run", "-m", "pytest", "-m", "not deep", *test_folders(*PACKAGES), *session.posargs)
    session.run("coverage", "report")


@nox.session
def wheels(session: nox.Session) -> None:
    """Build the wheels to publish: they depend on their siblings by version, not by path in this clone."""
    session.install("build", "hatchling>=1.26")
    out = ROOT / "dist"
    for name in PACKAGES:
        copy = Path(session.create_tmp()) / name
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(ROOT / "packages" / name, copy)
        metadata = (copy / "pyproject.toml").read_text()
        version = re.findall(r'^version = "(.*)"$', metadata, re.M)[0]
        (copy / "pyproject.toml").write_text(re.sub(r" @ \{root:parent:uri\}/\w+", f"=={version}", metadata))
        session.run("python", "-m", "build", "--no-isolation", "--outdir", str(out), str(copy), silent=True)
        wheel = out / f"{name}-{version}-py3-none-any.whl"
        listing = str(session.run("python", "-c", READ_REQUIREMENTS, str(wheel), silent=True, log=False))
        if " @ " in listing:
            session.error(f"{wheel.name} depends on paths instead of versions:\n{listing}")
        print(f"{os.path.relpath(wheel, ROOT)}\n{listing}")


READ_REQUIREMENTS = """
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    lines = wheel.read(metadata).decode().splitlines()
print("\\n".join(line for line in lines if line.startswith("Requires-Dist")))
"""
