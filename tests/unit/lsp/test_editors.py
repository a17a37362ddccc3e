"""The files in editors/: they can be read, and name commands and settings that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import fields
from typing import get_args

from pages import ROOT

from everfold.cli.main import everfold
from everfold.lsp.server import Compare, Settings

VSCODE = ROOT / "editors" / "vscode"
PACKAGE = json.loads((VSCODE / "package.json").read_text())
OPTIONS = {
    name.removeprefix("everfold."): option
    for name, option in PACKAGE["contributes"]["configuration"]["properties"].items()
}


def accepts(command: list[str]) -> bool:
    """Return whether the command line has a command with these options."""
    program, name, *options = command
    known = {option for param in everfold.commands[name].params for option in param.opts}
    return program == "everfold" and {*options} <= known


def test_the_extension_starts_the_real_command() -> None:
    assert accepts(OPTIONS["command"]["default"])


def test_the_extension_has_the_settings_of_the_server() -> None:
    defaults = Settings()
    assert {*OPTIONS} == {"command", *(each.name for each in fields(Settings))}
    assert {name: OPTIONS[name]["default"] for name in OPTIONS if name != "command"} == {
        each.name: getattr(defaults, each.name) for each in fields(Settings)
    }
    assert OPTIONS["compare"]["enum"] == [*get_args(Compare)]


def test_the_extension_has_the_files_that_it_names() -> None:
    for name in (PACKAGE["main"], *(each["url"] for each in PACKAGE["contributes"]["yamlValidation"])):
        assert (VSCODE / name).is_file()
    script = (VSCODE / PACKAGE["main"]).read_text()
    for each in PACKAGE["contributes"]["commands"]:
        assert f'registerCommand("{each["command"]}"' in script
    # The only packages are VS Code's own and the declared ones.
    required = {name.split("/")[0] for name in re.findall(r'require\("([^"]+)"\)', script)}
    assert required == {"vscode", *PACKAGE["dependencies"]}
    for opening, closing in ("()", "[]", "{}"):
        assert script.count(opening) == script.count(closing)
    if node := shutil.which("node"):
        subprocess.run([node, "--check", str(VSCODE / PACKAGE["main"])], check=True, timeout=60)


def test_neovim_starts_the_real_command() -> None:
    text = (ROOT / "editors" / "neovim" / "everfold.lua").read_text()
    command = re.search(r"cmd = \{ (.*?) \}", text)
    assert command is not None
    assert accepts(json.loads(f"[{command[1]}]"))
    options = re.search(r"init_options = \{(.*?)\n  \}", text, re.DOTALL)
    assert options is not None
    assert {*re.findall(r"^    (\w+) =", options[1], re.MULTILINE)} <= {each.name for each in fields(Settings)}
