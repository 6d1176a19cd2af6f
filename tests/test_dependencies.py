"""What is declared is used, and what is used is declared."""

import ast
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
MODULES = {"pillow": "PIL"}  # where the module has another name than the package
# Packages that are run, not imported: the text that runs them, and where it stands.
RUN = {
    "pytest-cov": ("Makefile", "--cov"),
    "pytest-xdist": ("Makefile", "-n auto"),
    "ruff": ("Makefile", "ruff check"),
    "mypy": ("Makefile", "/mypy"),
    "hatchling": ("pyproject.toml", 'build-backend = "hatchling.build"'),
}


def declared(table):
    """The packages of one list in pyproject.toml."""
    content = re.search(rf"^{table} = \[(.*?)\]$", PROJECT, re.DOTALL | re.MULTILINE).group(1)
    return set(re.findall(r'"([A-Za-z0-9_-]+)>=', content))


def modules(packages):
    return {MODULES.get(package, package) for package in packages}


@cache
def trees(folder):
    return [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / folder).rglob("*.py"))]


@cache
def imported(folder):
    """The modules of other packages that the files of a folder import, at their heads or inside functions."""
    names = set()
    for node in (node for tree in trees(folder) for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module)
    own = {path.stem for path in (ROOT / folder).rglob("*.py")} | {"sddm"}
    return {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - own


@cache
def named(folder):
    """The modules that the strings of a folder's files name, as those of imports on demand do."""
    strings = (node.value for tree in trees(folder) for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {string.split(".")[0] for string in strings if isinstance(string, str)}


def test_the_package_imports_what_it_declares_and_declares_what_it_imports():
    assert imported("src") == modules(declared("dependencies"))


@pytest.mark.parametrize("extra", ["tables", "tensorboard", "molecules", "music"])
def test_an_extra_is_imported_on_demand_only(extra):
    assert modules(declared(extra)) <= named("src") - imported("src")


def test_the_tests_import_or_run_every_tool_of_the_developers():
    for package in declared("dev"):
        if package in RUN:
            file, text = RUN[package]
            assert text in (ROOT / file).read_text(encoding="utf-8"), package
        else:
            assert modules([package]) <= imported("tests") | named("tests"), package


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "examples"])
def test_tests_benchmarks_and_examples_import_only_what_is_declared(folder):
    assert imported(folder) <= modules(declared("dependencies") | declared("dev"))


@pytest.mark.parametrize("folder", ["benchmarks", "examples"])
def test_what_benchmarks_and_examples_import_of_the_library_exists(folder):
    for node in (node for tree in trees(folder) for node in ast.walk(tree)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "sddm":
            module = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                assert hasattr(module, name) or importlib.util.find_spec(f"{node.module}.{name}"), (node.module, name)


def test_every_declared_package_has_one_tested_version():
    pinned = re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(pinned) == len(set(pinned))
    assert declared("dependencies") | declared("dev") <= {name.replace("-", "_") for name in pinned} | set(pinned)
