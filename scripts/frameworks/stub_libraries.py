"""Builds stand-ins for the GPU libraries that PyTorch's package needs, so that it runs on the CPU alone.

usage: stub_libraries.py FOLDER     where `site-packages/torch/lib` is

The package from PyPI is linked against 2.4 GB of CUDA libraries and does not start without them. Each
stand-in has the functions that torch asks for, with their versions; every call says that there is no
device.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

# Libraries of every system, and names that are part of the interpreter or of the compiler.
SYSTEM = re.compile(
    r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux-x86-64|libgomp)\.so"
)
SYSTEM_FILES = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1")
FOREIGN_PREFIXES = ("Py", "_Py", "__")

# Libraries whose functions carry no version, by how these begin.
PREFIXES = {
    "libcublas": r"cublas(?!Lt)",
    "libcublasLt": r"cublasLt",
    "libcuda": r"cu[A-Z]",
    "libcudart": r"(cuda|__cuda)",
    "libcudnn": r"cudnn",
    "libcufft": r"cufft",
    "libcufile": r"cuFile",
    "libcupti": r"(cupti|CUPTI)",
    "libcurand": r"curand",
    "libcusolver": r"cusolver",
    "libcusparse": r"cusparse(?!Lt)",
    "libcusparseLt": r"cusparseLt",
    "libnccl": r"(nccl|pnccl)",
    "libnvJitLink": r"nvJitLink",
    "libnvrtc": r"nvrtc",
    "libnvshmem": r"nvshmem",
    "libnvToolsExt": r"nvtx",
}
# On the machine already, or looked for by torch in a way of its own.
LEFT_ALONE = {"libz.so.1", "libcuda.so.1", "libquadmath.so.0"}

NO_DEVICE = 100


def output(*command: str) -> str:
    """What a program prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Wanted:
    """What the libraries of a folder ask for and do not have."""

    def __init__(self, folder: Path) -> None:
        self.libraries: set[str] = set()
        self.versioned: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.plain: set[str] = set()
        files = sorted(folder.glob("*.so*"))
        defined: set[str] = set()
        for file in files:
            self.libraries |= set(re.findall(r"NEEDED\s+(\S+)", output("objdump", "-p", str(file))))
            defined |= self._read_symbols(file)
        present = {file.name for file in files}
        self.libraries = {
            name for name in self.libraries - present - LEFT_ALONE if not SYSTEM.match(name)
        }
        self.plain -= defined | system_symbols()
        self.plain = {name for name in self.plain if not name.startswith(FOREIGN_PREFIXES)}

    def _read_symbols(self, file: Path) -> set[str]:
        """Notes what `file` asks for; returns what it defines."""
        library, of_version = None, {}
        for line in output("readelf", "-W", "-V", str(file)).splitlines():
            if found := re.search(r"File: (\S+)", line):
                library = found.group(1)
            if (found := re.search(r"Name: (\S+)\s+Flags", line)) and library:
                of_version[found.group(1)] = library
        defined = set()
        for name, bind, section in symbols(file):
            if section != "UND":
                defined.add(name.split("@")[0])
            elif "@" in name:
                function, version = re.split(r"@+", name, maxsplit=1)
                self.versioned[of_version.get(version, "")][version].add(function)
            elif bind == "GLOBAL":
                self.plain.add(name)
        return defined

    def functions(self, library: str) -> set[str]:
        """The functions of a library that carry no version."""
        prefix = PREFIXES.get(library.split(".so")[0])
        return {name for name in self.plain if prefix and re.match(prefix, name)}


def symbols(file: Path) -> list[tuple[str, str, str]]:
    """Name, binding and section of each dynamic symbol."""
    rows = (line.split() for line in output("readelf", "-W", "--dyn-syms", str(file)).splitlines())
    return [(row[7], row[4], row[6]) for row in rows if len(row) >= 8 and row[0].endswith(":")]


def system_symbols() -> set[str]:
    """What the libraries of every system define."""
    defined = set()
    for name in SYSTEM_FILES:
        for folder in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"):
            if (file := Path(folder, name)).exists():
                defined |= {
                    symbol.split("@")[0] for symbol, _, section in symbols(file) if section != "UND"
                }
    return defined


def stand_in(function: str) -> str:
    """A function in C that says that there is no device, as far as its callers look."""
    if re.search(r"GetErrorString|GetErrorName|getErrorString", function):
        return f'const char *{function}(void) {{ return "no device"; }}'
    if function == "cudaGetDeviceCount":
        return f"int {function}(int *count) {{ if (count) *count = 0; return {NO_DEVICE}; }}"
    if function.startswith("__cudaRegisterFatBinary"):
        return f"static void *handle[8]; void **{function}(void) {{ return handle; }}"
    if function.startswith("cudnn") and re.search(r"[gG]et(Library)?Version", function):
        return f"unsigned long {function}(void) {{ return 0; }}"
    succeeds = function.startswith("__cuda") or re.search(
        r"[gG]et(Library)?Version|cudaGetLastError|cudaPeekAtLastError", function
    )
    return f"int {function}(void) {{ return {0 if succeeds else NO_DEVICE}; }}"


def build(folder: Path, library: str, wanted: Wanted) -> None:
    """Compiles the stand-in of one library into `folder`."""
    versions = wanted.versioned.get(library, {})
    functions = wanted.functions(library).union(*versions.values())
    source = folder / f"{library}.c"
    source.write_text("\n".join(stand_in(function) for function in sorted(functions)) + "\n")
    link = ["-shared", "-fPIC", "-O1", "-w", f"-Wl,-soname,{library}", "-o", str(folder / library)]
    script = folder / f"{library}.map"
    if versions:
        names = (
            f"{version} {{ global: {'; '.join(sorted(of))}; }};" for version, of in versions.items()
        )
        script.write_text("\n".join(names) + "\n")
        link.append(f"-Wl,--version-script={script}")
    subprocess.run(["gcc", *link, str(source)], check=True)
    source.unlink()
    script.unlink(missing_ok=True)


def main(folder: Path) -> None:
    """Builds all that are missing."""
    wanted = Wanted(folder)
    for library in sorted(wanted.libraries):
        build(folder, library, wanted)
    print(f"stub libraries: {len(wanted.libraries)} in {folder}", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
