"""Links of the README and of docs lead somewhere, the commands there exist, and summaries say what their pages say."""

import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = (README, ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md")))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """What a page says outside its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[str]:
    """Those to other files and to headings."""
    targets: list[str] = LINK.findall(re.sub(r"(?<!\[)`[^`\n]*`", "", prose(page)))
    return [target for target in targets if not re.match(r"\w+:", target)]


def anchors(page: Path) -> set[str]:
    """What headings are called in links: lower case, hyphens for spaces, no punctuation; -1 behind a second one."""
    found: set[str] = set()
    seen = Counter[str]()
    for heading in re.findall(r"^#+ +(.*?)\s*$", prose(page), flags=re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", LINK.sub("", heading).lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken(page: Path) -> list[str]:
    """Links whose file or heading does not exist."""
    return [target for target in links(page) if not leads_somewhere(page, target)]


def leads_somewhere(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = page.parent / name if name else page
    return file.exists() and (not anchor or (file.suffix == ".md" and anchor in anchors(file)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert broken(page) == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One\n\n```sh\n# no heading\n```\n\n## What's `a_b`, really?\n\n## One\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n\n[a](other.md) [b](other.md#one-1) [`c`](other.md#whats-a_b-really) [d](#here) [e](https://x.org/#y)\n"
        "`[code](nowhere)` [f](gone.md) [g](other.md#no-heading) [`h`](#there) [i](../gone)\n\n```\n[j](nowhere)\n```\n"
    )
    assert broken(page) == ["gone.md", "other.md#no-heading", "#there", "../gone"]


def test_the_index_lists_every_page() -> None:
    listed = {(DOCS / target).resolve() for target in links(DOCS / "README.md") if "#" not in target}
    assert listed >= {page.resolve() for page in DOCS.rglob("*.md")} - {(DOCS / "README.md").resolve()}


def test_the_readme_links_to_every_page_of_guide_and_results() -> None:
    listed = {(ROOT / target).resolve() for target in links(README)}
    assert listed >= {page.resolve() for folder in ("guide", "results") for page in (DOCS / folder).glob("*.md")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_experiments_that_a_page_names_exist_with_their_options(page: Path) -> None:
    commands = re.findall(r"python -m (experiments(?:\.\w+)*)([^`\n&]*)", page.read_text(encoding="utf-8"))
    for module, arguments in commands:
        assert find_spec(module), module
        assert missing_options(module, arguments) == [], module


def missing_options(module: str, arguments: str) -> list[str]:
    """Options that neither the module spells nor one of the experiments that it imports."""
    source = source_of(module)
    parts = re.findall(r"^(?:from|import) (experiments[\w.]*)(?: import ([\w, ]+))?", source, flags=re.MULTILINE)
    names = {name for package, inner in parts for name in (package, *(f"{package}.{i}" for i in inner.split(", ")))}
    spelled = source + "".join(map(source_of, names))
    return [option for option in re.findall(r"--[\w-]+", arguments) if f'"{option}"' not in spelled]


def source_of(module: str) -> str:
    """Of an experiment and, if it is a package, of what ``python -m`` runs of it; nothing where it is no module."""
    path = ROOT.joinpath(*module.split("."))
    files = (path.with_suffix(".py"), path / "__main__.py", path / "__init__.py")
    return "".join(file.read_text(encoding="utf-8") for file in files if file.exists())


@pytest.mark.parametrize(
    ("module", "arguments", "expected"),
    [
        ("experiments.results", "ZOO OUT --time 120s", []),
        ("experiments.peers.make", "ZOO OUT MODEL --python PATH --seeds 3", ["--seeds"]),
        ("experiments.zoo", "ZOO --comparisons 500", ["--comparisons"]),
    ],
)
def test_an_option_is_one_of_the_command_that_it_stands_behind(
    module: str, arguments: str, expected: list[str]
) -> None:
    assert missing_options(module, arguments) == expected


def summaries() -> list[str]:
    """The rows of *What was measured*."""
    section = README.read_text(encoding="utf-8").split("\n## What was measured\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


@pytest.mark.parametrize("row", summaries())
def test_every_number_of_a_summary_is_on_its_page(row: str) -> None:
    _, wanted, found, _, page_link, _ = row.split("|")
    (target,) = LINK.findall(page_link)
    page = (ROOT / target.split("#")[0]).read_text(encoding="utf-8")
    numbers = set(re.findall(r"(?<![\w.])\d[\d.,]*\d|(?<![\w.])\d(?![\w.])", found))
    assert numbers, wanted
    assert {number for number in numbers if not re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.]*\d)", page)} == set()
