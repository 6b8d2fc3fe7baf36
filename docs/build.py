"""Build the documentation: python -m docs.build

Pages of docs/pages are copied to build/documentation/pages with their inserts filled in, the
gallery and the notebooks are added, and Zensical makes build/documentation/site of them. A broken
link is an error, and so is a page that lacks something or that would fetch from another place.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from docs.generate import (
    architecture,
    assemble,
    catalogues,
    commands,
    contributing,
    gallery,
    hours,
    notebooks,
    papers_page,
    results_page,
    style,
    sweep_files,
    transcripts,
    troubleshooting,
)
from docs.generate.shipped import ROOT
from fope_lab.cli import COMMANDS
from fope_lab.embeddings import embedding_names

PARTS = {
    "architecture": architecture.drawing,
    "analyses": catalogues.analyses,
    "command-overview": commands.overview,
    "command-reference": commands.reference,
    "contributing": contributing.section,
    "errors": troubleshooting.page,
    "front-figures": results_page.front,
    "gallery": gallery.overview,
    "hours-of-sweeps": hours.of_sweeps,
    "hours-of-trainings": hours.of_trainings,
    "metrics": catalogues.metrics,
    "paper": papers_page.page,
    "results": results_page.page,
    "sweep-kinds": sweep_files.kinds,
    "sweep-sections": sweep_files.sections,
    "sweep-top": sweep_files.top_level,
    "transcript": transcripts.of_step,
}
SOURCES, TARGET = ROOT / "docs" / "pages", ROOT / "build" / "documentation"
LOADS = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?(https?:)?//")
"""A tag that makes a browser fetch something from another place."""


def write_sources(target: Path) -> Path:
    """Write everything that the site is built from into `target`; returns its configuration."""
    shutil.rmtree(target, ignore_errors=True)
    pages = target / "pages"
    assemble.assemble(SOURCES, pages, PARTS)
    added = gallery.pages() | notebooks.pages()
    for path, text in added.items():
        place = pages / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    notebooks.write_pictures(pages)
    (pages / "assets").mkdir(exist_ok=True)
    (pages / "assets" / "figures.css").write_text(style.sheet(), encoding="utf-8")
    shutil.copytree(ROOT / "sweeps", pages / "sweeps")
    shutil.copyfile(transcripts.FIGURE, pages / "assets" / "tutorial.svg")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    settings |= {"docs_dir": "pages", "site_dir": "site"}
    settings["plugins"][0]["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT)]
    for entry in settings["nav"]:
        if "Gallery" in entry:
            entry["Gallery"] += sorted(path for path in added if path.startswith(gallery.FOLDER))
    config = target / "mkdocs.yml"
    config.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return config


def faults(site: Path) -> Iterator[str]:
    """What the built pages lack, and what they should not have."""
    for name in embedding_names():
        if "<svg" not in (site / "gallery" / name / "index.html").read_text(encoding="utf-8"):
            yield f"gallery/{name}: no picture"
    commands = (site / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    yield from (
        f"no command {name}" for name in COMMANDS if f'id="fope-lab-{name}"' not in commands
    )
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if "<!-- insert" in text:
            yield f"{page}: a part is not filled in"
        tags = (tag[0] for tag in LOADS.finditer(text))
        yield from (f"{page}: fetches {tag}" for tag in tags if 'rel="canonical"' not in tag)


def main() -> int:
    """Build the site into build/documentation/site; returns the exit code."""
    config = write_sources(TARGET)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    built = subprocess.run([*command, "-f", str(config)], cwd=config.parent, check=False)
    found = [] if built.returncode else list(faults(TARGET / "site"))
    for fault in found:
        print(f"error: {fault}", file=sys.stderr)
    return built.returncode or bool(found)


if __name__ == "__main__":
    sys.exit(main())
