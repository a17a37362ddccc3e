"""The documentation site builds without warnings, its links resolve, and it loads nothing from elsewhere."""

from __future__ import annotations

import html
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from record_pictures import Project, record_job

ROOT = Path(__file__).parents[1]
_URL = re.compile(r"url\(\s*['\"]?(?P<css>[^'\")]+)|@import\s+['\"](?P<imported>[^'\"]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site from a copy of its sources."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", folder)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


class _Page(HTMLParser):
    """The links, resources and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        for name, value in attrs:
            if value is None:
                continue
            if name in ("id", "name"):
                self.anchors.add(value)
            elif tag == "a" and name == "href":
                self.links.append(value)
            elif name in ("src", "srcset", "poster", "data") or (name == "href" and tag in ("link", "use", "image")):
                self.resources.append(value)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    """Parse the pages of the site."""
    return {file: _Page(file.read_text(encoding="utf-8")) for file in site.rglob("*.html")}


def test_each_page_is_in_the_site(site: Path, pages: dict[Path, _Page]) -> None:
    sources = {file.relative_to(ROOT / "docs") for file in (ROOT / "docs").rglob("*.md")}
    expected = {
        (site / each).with_name("index.html")
        if each.name in ("index.md", "README.md")
        else site / each.with_suffix("") / "index.html"
        for each in sources
    }
    assert expected <= pages.keys()
    assert (site / "search.json").stat().st_size > 100_000


def test_each_page_of_the_menu_exists() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    def find(entry: object) -> Iterator[str]:
        match entry:
            case str():
                yield entry
            case list():
                for each in entry:
                    yield from find(each)
            case dict():
                for each in entry.values():
                    yield from find(each)

    assert [name for name in find(settings["nav"]) if not (ROOT / "docs" / name).is_file()] == []


def test_links_and_anchors_resolve(site: Path, pages: dict[Path, _Page]) -> None:
    dead = []
    for file, page in pages.items():
        if file.name == "404.html":
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in pages[target].anchors):
                dead.append(f"{file.relative_to(site)}: {link}")
    assert dead == []


def is_external(address: str) -> bool:
    """Return whether a browser would load an address from another server."""
    return address.startswith("//") or urlsplit(address).scheme in ("http", "https", "ws", "wss")


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, _Page]) -> None:
    loaded = {(file, each) for file, page in pages.items() for each in page.resources}
    for file in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        for found in _URL.finditer(file.read_text(encoding="utf-8")):
            loaded.add((file, found["css"] or found["imported"]))
    assert len(loaded) > 100
    assert [f"{file.relative_to(site)}: {each}" for file, each in sorted(loaded) if is_external(each)] == []


def load_script(name: str) -> ModuleType:
    """Import a script of docs/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RECORDINGS = ("check", "explain", "error", "run", "init")


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings_show_what_the_commands_print(name: str) -> None:
    recordings = load_script("recordings")
    assert name in recordings.RECORDINGS
    shown = (ROOT / "docs" / "recordings" / f"{name}.svg").read_text(encoding="utf-8")
    assert shown == recordings.record(name), "run: make docs"


def test_each_recording_is_tested_and_shown() -> None:
    files = {file.stem for file in (ROOT / "docs" / "recordings").iterdir()}
    assert files == load_script("recordings").RECORDINGS.keys() == {*RECORDINGS}
    assert files <= {shown.stem for shown in find_pictures()}


def find_pictures() -> set[Path]:
    """Return the pictures on the pages of docs/ and in the README."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {
        (page.parent / target).resolve()
        for page in pages
        for target in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }


def test_each_picture_is_shown() -> None:
    assert {*(ROOT / "docs" / "pictures").iterdir(), ROOT / "docs" / "shell.svg"} <= find_pictures()


def read_words(picture: str) -> list[str]:
    """Return the words in a picture of a terminal, without numbers, units and the name of the machine."""
    text = html.unescape(" ".join(re.findall(r"<text[^>]*>(.*?)</text>", picture)))
    text = re.sub(r"process \d+ on \S+ since", "process since", text.replace("\N{NO-BREAK SPACE}", " "))
    return [word for word in re.findall(r"[a-z_]{3,}", text) if word not in ("min", "bytes")]


@pytest.mark.slow
@pytest.mark.spark
def test_pictures_of_a_job_show_what_the_commands_print(tmp_path: Path) -> None:
    for name, picture in record_job(Project(tmp_path / "shop", tmp_path / "cache")).items():
        shown = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        assert read_words(shown) == read_words(picture), f"{name}.svg: run make docs PICTURES=1"


def test_parameters_become_a_list() -> None:
    lists = load_script("parameter_lists")
    text = "Do it.\n\nfirst: what\nit is.\nsecond, third: others.\n\nRaises it: no."
    assert lists.make_lists(text) == "Do it.\n\n- `first`: what it is.\n- `second, third`: others.\n\nRaises it: no."
