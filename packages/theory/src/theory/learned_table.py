"""The table of `theory.learned_laws`, as Markdown: energy distances of learned and true laws at three inputs."""

from theory.learned_laws import TASKS, TEST_SETS, tested

HEAD = (
    f"| law | x | energy distance, median | critical value, median | their ratio, median | passed, of {TEST_SETS} |",
    "|---|---|---|---|---|---|",
)


def markdown(seed: int = 0) -> str:
    """One row per law and input."""
    rows = [
        f"| {name if k == 0 else ''} | {found.x:g} | {found.distance:.4f} | {found.critical:.4f} "
        f"| {found.ratio:.2f} | {round(found.share * TEST_SETS)} |"
        for name in TASKS
        for k, found in enumerate(tested(name, seed))
    ]
    return "\n".join((*HEAD, *rows))
