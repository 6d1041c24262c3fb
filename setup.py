"""Build the compiled core.

`RINGCAST_BUILD` chooses a row of VARIANTS. Everything else is in pyproject.toml.
"""

import os
import shutil
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers",
            "-Werror"]

# Each build has flags for the compiler and the linker, and directives for Cython.
VARIANTS = {
    "release":  (["-O3"], [], {}),
    "debug":    (["-Og", "-g", "-UNDEBUG"], [], {}),
    "coverage": (["-O0", "-DCYTHON_TRACE_NOGIL=1", "-DCYTHON_USE_SYS_MONITORING=0"],
                 [], {"linetrace": True}),
    "tsan":     (["-O1", "-g", "-fsanitize=thread"], ["-fsanitize=thread"], {}),
    "asan":     (["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"],
                 ["-fsanitize=address"], {}),
    "ubsan":    (["-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=undefined"],
                 ["-fsanitize=undefined"], {}),
    # With CC=clang: the fuzzer sees which branches are taken, AddressSanitizer watches.
    "fuzz":     (["-O1", "-g", "-fsanitize=address,fuzzer-no-link"],
                 ["-fsanitize=address,fuzzer-no-link"], {}),
}

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "auto_pickle": False,
    "freethreading_compatible": True,   # docs/free-threading.md says why
    "warn.unused": True,
    "warn.maybe_uninitialized": True,
}

variant = os.environ.get("RINGCAST_BUILD", "release")
if variant not in VARIANTS:
    raise SystemExit(f"RINGCAST_BUILD={variant} is not a build; "
                     f"choose one of {', '.join(VARIANTS)}")
compile_flags, link_flags, directives = VARIANTS[variant]

CORE = Path("ext/ringcast/_core")
extensions = [
    Extension(
        f"ringcast._core.{source.stem}",
        [str(source)],
        include_dirs=[str(CORE)],
        depends=[str(header) for header in sorted([*CORE.glob("*.h"), *CORE.glob("*.pxd")])],
        extra_compile_args=["-std=gnu11", *compile_flags, *WARNINGS],
        extra_link_args=link_flags,
    )
    for source in sorted(CORE.glob("*.pyx"))
]


def compiled():
    """Run Cython for the chosen variant. Its warnings are errors, as those of C are."""
    from Cython.Compiler import Options

    Options.warning_errors = True
    return cythonize(
        extensions,
        include_path=["ext"],
        compiler_directives={**DIRECTIVES, **directives},
        # The coverage plugin looks for the generated C beside its source; every other
        # build keeps the tree clean.
        build_dir=None if variant == "coverage" else f"build/cython-{variant}",
        annotate=variant == "debug",
        force=variant != "release",
    )


class BuildCore(build_ext):
    """Compile the core, or say what is missing for that."""

    def build_extensions(self):
        compiler = self.compiler.compiler_so[0]
        if shutil.which(compiler) is None:
            raise SystemExit(f"ringcast compiles its core, and there is no C compiler {compiler}: "
                             "install one (Debian: apt-get install gcc libc6-dev).")
        header = Path(sysconfig.get_path("include"), "Python.h")
        if not header.exists():
            raise SystemExit(f"ringcast compiles its core, and there is no {header}: install "
                             "Python's headers (Debian: apt-get install python3-dev).")
        super().build_extensions()


if __name__ == "__main__":              # the tests of the sanitizers read the table above
    setup(ext_modules=compiled(), cmdclass={"build_ext": BuildCore})
