"""`install` makes FlashAttention's names importable, for code that cannot be changed."""

from __future__ import annotations

import importlib
import importlib.machinery
import re
import sys
from importlib import metadata
from importlib.abc import Loader
from types import ModuleType
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from ..errors import ArgumentError

_HERE = __name__.rpartition(".")[0]
_ROOT = _HERE.rpartition(".")[0]


class _Generation(NamedTuple):
    """What one generation of FlashAttention installs."""

    #: The distribution's name and version.
    distribution: str
    version: str
    #: Each module that can be imported, and the module of this package whose names it has.
    modules: Dict[str, str]


_GENERATIONS = {
    "2": _Generation(
        "flash-attn",
        "2.8.4",
        {
            "flash_attn": _HERE,
            "flash_attn.flash_attn_interface": f"{_HERE}.flash_attn_interface",
            "flash_attn.bert_padding": f"{_HERE}.bert_padding",
            "flash_attn.layers": f"{_HERE}.layers",
            "flash_attn.layers.rotary": f"{_HERE}.layers.rotary",
        },
    ),
    "3": _Generation(
        "flash-attn-3",
        "3.0.0",
        {
            "flash_attn_interface": f"{_ROOT}.flash_attn_interface",
            "flash_attn_3": f"{_ROOT}.flash_attn_interface",
            "flash_attn_3.flash_attn_interface": f"{_ROOT}.flash_attn_interface",
        },
    ),
    "4": _Generation(
        "flash-attn-4",
        "4.0.0",
        {
            "flash_attn": "",
            "flash_attn.cute": f"{_HERE}.cute",
            "flash_attn.cute.interface": f"{_HERE}.cute",
        },
    ),
}

#: Modules that were imported under these names before `install`.
_hidden: Dict[str, ModuleType] = {}


def install(generation: Any = "2") -> None:
    """Makes the modules of a generation of FlashAttention importable, and its package's version
    known::

        flashattn.flash_attn.install("2")
        from flash_attn import flash_attn_func

    Call it before the code that imports FlashAttention, or asks whether it is there, is imported. A
    FlashAttention that is installed is hidden until `uninstall`. May be called for several
    generations.

    Args:
      generation: "2", "3" or "4".
    """
    name = str(generation)
    if name not in _GENERATIONS:
        raise ArgumentError(f"expected generation '2', '3' or '4' but got {generation!r}")
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    if name not in _finder.generations:
        _finder.generations.append(name)
        _forget(_finder.modules())
    importlib.invalidate_caches()


def uninstall() -> None:
    """Undoes every `install`. Names that other modules have imported stay theirs."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    _forget({})
    _finder.generations.clear()
    for name, module in _hidden.items():
        sys.modules[name] = module
    _hidden.clear()
    importlib.invalidate_caches()


def _forget(hides: Dict[str, str]) -> None:
    """Removes the modules of `_finder` from those that are imported, and puts aside others of the
    names `hides`."""
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if isinstance(getattr(spec, "loader", None), _Loader):
            parent = sys.modules.get(name.rpartition(".")[0])
            child = name.rpartition(".")[2]
            if getattr(parent, child, None) is module:
                delattr(parent, child)
            del sys.modules[name]
        elif any(name == hidden or name.startswith(hidden + ".") for hidden in hides):
            _hidden[name] = sys.modules.pop(name)


class _Loader(Loader):
    """Fills a module with the public names of a module of this package, or with none."""

    def __init__(self, target: str, version: str):
        self.target, self.version = target, version

    def exec_module(self, module: ModuleType) -> None:
        module.__version__ = self.version  # type: ignore[attr-defined]
        if not self.target:
            return
        target = importlib.import_module(self.target)
        names = [name for name in getattr(target, "__all__", ()) if name not in _OWN]
        module.__doc__ = target.__doc__
        module.__all__ = names  # type: ignore[attr-defined]
        for name in names:
            setattr(module, name, getattr(target, name))


#: The names of this package that FlashAttention does not have.
_OWN = ("install", "uninstall")


class _Distribution(metadata.Distribution):
    """The metadata of a package of FlashAttention."""

    def __init__(self, generation: _Generation):
        tops = sorted({name.partition(".")[0] for name in generation.modules})
        self.texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: {generation.distribution}\n"
            f"Version: {generation.version}\nSummary: FlashAttention's functions over flash-mlir\n",
            "top_level.txt": "".join(f"{top}\n" for top in tops),
        }

    def read_text(self, filename: str) -> Optional[str]:
        return self.texts.get(filename)

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"expected a file but got {path}, of a package without files")


class _Finder(metadata.DistributionFinder):
    """Finds the modules and the distributions of the generations that are installed."""

    def __init__(self) -> None:
        self.generations: List[str] = []

    def modules(self) -> Dict[str, str]:
        """Returns the modules that are found. Generation 4 alone leaves a package with
        FlashAttention-2 in place."""
        found: Dict[str, str] = {}
        for name in sorted(self.generations, reverse=True):
            found.update(_GENERATIONS[name].modules)
        if not found.get("flash_attn", "-"):
            other = importlib.machinery.PathFinder.find_spec("flash_attn")
            if other is not None and other.origin is not None:
                del found["flash_attn"]
        return found

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]] = None, target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname.partition(".")[0] not in ("flash_attn", "flash_attn_3", "flash_attn_interface"):
            return None
        modules = self.modules()
        if fullname not in modules:
            return None
        is_package = any(name.startswith(fullname + ".") for name in modules)
        loader = _Loader(modules[fullname], self._version_of(fullname))
        return importlib.machinery.ModuleSpec(fullname, loader, is_package=is_package)

    def _version_of(self, module: str) -> str:
        names = [name for name in self.generations if module in _GENERATIONS[name].modules]
        return _GENERATIONS[min(names)].version

    def find_distributions(
        self, context: metadata.DistributionFinder.Context = metadata.DistributionFinder.Context()
    ) -> Iterator[metadata.Distribution]:
        for name in self.generations:
            generation = _GENERATIONS[name]
            if context.name is None or _normal(context.name) == generation.distribution:
                yield _Distribution(generation)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


_finder = _Finder()
