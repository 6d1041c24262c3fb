"""Builds native_ring.pyx against the sources of this tree; CFLAGS and LDFLAGS of a
sanitizer run apply to it too."""

import importlib.util
import os
import tempfile
from pathlib import Path
from types import ModuleType

CORE = Path(__file__).resolve().parents[2] / "ext"


def build() -> ModuleType:
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    folder = tempfile.mkdtemp(prefix="ringcast-native-")
    source = Path(__file__).with_name("native_ring.pyx")
    extension = Extension("native_ring", [str(source)], include_dirs=[str(CORE / "ringcast/_core")])
    extensions = cythonize([extension], include_path=[str(CORE)], build_dir=folder, force=True,
                           quiet=True, compiler_directives={"freethreading_compatible": True})
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib = command.build_temp = folder
    command.ensure_finalized()
    preloaded = os.environ.pop("LD_PRELOAD", None)  # a sanitizer's runtime is for us, not for the
                                                    # compiler
    try:
        command.run()
    finally:
        if preloaded is not None:
            os.environ["LD_PRELOAD"] = preloaded
    spec = importlib.util.spec_from_file_location("native_ring",
                                                  command.get_ext_fullpath("native_ring"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
