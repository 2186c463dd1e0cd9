"""What the site has beside docs/: the README in both languages, the navigation, and links out of docs/."""

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]

# Files that the site has under another name.
PAGES = {
    "README.md": "index.md",
    "README.zh-CN.md": "zh/index.md",
    "docs/README.md": "pages.md",
    "tools/site/site.css": "site.css",
}

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config):
    config.nav = navigation((ROOT / "docs/README.md").read_text())
    return config


def navigation(text):
    """The tables of docs/README.md, one section each."""
    sections = []
    for line in text.splitlines():
        if not line.startswith("|") or line.startswith("| ---"):
            continue
        first = line.split("|")[1].strip()
        pages = [(title, page_of("docs", path)) for title, path, _ in LINK.findall(first)]
        if not pages:
            sections.append({first.capitalize(): []})
        for title, page in pages:
            if page.endswith(".md"):
                title = "weir" if title == "README" else title[0].upper() + title[1:]
                next(iter(sections[-1].values())).append({title: page})
    next(iter(sections[0].values())).append({"All pages": "pages.md"})
    return sections


def page_of(folder, path):
    """The name that the site has for a file to which a page in folder links, or "" for a file outside of it."""
    target = os.path.normpath(os.path.join(folder, path))
    if target in PAGES:
        return PAGES[target]
    return target.removeprefix("docs/") if target.startswith("docs/") else ""


def on_files(files, config):
    files.remove(files.get_file_from_path("README.md"))
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown, page, config, files):
    folder = Path(page.file.abs_src_path).parent.relative_to(ROOT)
    here = PurePosixPath(page.file.src_uri).parent

    def moved(match):
        text, path, anchor = match.groups(default="")
        target = os.path.normpath(os.path.join(folder, path))
        if not (ROOT / target).exists():
            return match[0]
        name = page_of(folder, path)
        if files.get_file_from_path(name):
            return f"[{text}]({os.path.relpath(name, here)}{anchor})"
        return f"[{text}]({config.extra['repository']}/blob/main/{target}{anchor})"

    return LINK.sub(moved, markdown)


def on_page_context(context, page, config, nav):
    """The theme has the language of the page. Its switch of languages leads to the page that the first lines link to."""
    here = page.file
    config.theme["language"] = "zh" if is_chinese(here) else "en"
    there = in_other_language(here) or ("index.html" if is_chinese(here) else "zh/index.html")
    english, chinese = (there, here.url) if is_chinese(here) else (here.url, there)
    config.extra["alternate"] = [
        {"name": "English", "link": english, "lang": "en"},
        {"name": "中文", "link": chinese, "lang": "zh"},
    ]
    return context


def in_other_language(file):
    source = Path(file.abs_src_path)
    head = "\n".join(source.read_text().splitlines()[:5])
    for text, path, _ in LINK.findall(head):
        if text in ("English", "中文"):
            return page_of(source.parent.relative_to(ROOT), path).replace(".md", ".html")
    return None


def is_chinese(file):
    return file.src_uri.startswith("zh/")
