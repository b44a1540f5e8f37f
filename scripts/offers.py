"""Says what this machine offers to the tests that not every machine can run.

Prints the value for `TIERFEED_REQUIRE`: the names of what is offered, separated by commas, and with a
`-` before them those of what is not. Each probe makes its own system calls or looks for a program or
module; none asks the code under test. The names are those of `test-needs` (Rust) and
`python/tests/needs.py`. With --explain the list goes to people, one line each.
"""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

CALLS = {
    "x86_64": {"io_uring_setup": 425, "cachestat": 451, "set_mempolicy": 238},
    "aarch64": {"io_uring_setup": 425, "cachestat": 451, "set_mempolicy": 237},
}[platform.machine()]
MPOL_DEFAULT, MPOL_PREFERRED_MANY = 0, 5
MADV_HWPOISON = 100
GROUPS = Path("/sys/fs/cgroup")
HUGE_POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
# The set-up installs these; a machine on which that failed must not pass for one that lacks them.
MODULES = ("PIL", "h5py", "lmdb", "numpy", "pyarrow", "torch", "webdataset", "xxhash")
# Too large for the set-up, or at odds with Debian's NumPy.
MODULES_IF_INSTALLED = ("litdata", "streaming")
# In environments of their own (scripts/frameworks/setup.sh), of which the newest has all.
FRAMEWORKS = (
    "accelerate",
    "aiohttp",
    "fsspec",
    "grain",
    "jax",
    "keras",
    "lightning",
    "pandas",
    "tensorflow",
    "torchdata",
    "torchvision",
    "transformers",
)
VERSIONS = os.environ.get("TIERFEED_FRAMEWORKS")

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """The result of a system call; raises what the kernel said."""
    result = int(libc.syscall(ctypes.c_long(CALLS[name]), *arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def io_uring() -> None:
    parameters = ctypes.create_string_buffer(120)
    os.close(call("io_uring_setup", ctypes.c_uint(4), parameters))


def direct_io() -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
        descriptor = os.open(file.name, os.O_RDONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, 4096) as page:
                if os.preadv(descriptor, [page], 0) != 4096:
                    raise OSError("a direct read came short")
        finally:
            os.close(descriptor)


def cachestat() -> None:
    """Also where cargo builds: an overlay takes the call and tells of no page."""
    for folder in (None, *filter(os.path.isdir, ["target"])):
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
            file.flush()
            whole, counts = (ctypes.c_uint64 * 2)(0, 4096), (ctypes.c_uint64 * 5)()
            call("cachestat", ctypes.c_uint(file.fileno()), whole, counts, ctypes.c_uint(0))
            if counts[0] == 0:
                raise OSError(f"the file system of {file.name} does not tell what is cached")


def mounts() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder)
        run("umount", folder)


def fuse() -> None:
    with tempfile.TemporaryDirectory() as folder, open("/dev/fuse", "r+b", buffering=0) as server:
        options = f"fd={server.fileno()},rootmode=40000,user_id=0,group_id=0"
        if libc.mount(b"silent", folder.encode(), b"fuse", 0, options.encode()) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        libc.umount2(folder.encode(), 2)


def memory_groups() -> None:
    name = f"tierfeed-offers-{uuid.uuid4()}"
    if (GROUPS / "memory").is_dir():
        group, limit = GROUPS / "memory" / name, "memory.limit_in_bytes"
    else:
        controllers = (GROUPS / "cgroup.subtree_control").read_text().split()
        if "memory" not in controllers:
            (GROUPS / "cgroup.subtree_control").write_text("+memory")
        group, limit = GROUPS / name, "memory.max"
    group.mkdir()
    try:
        (group / limit).write_text(str(1 << 30))
    finally:
        group.rmdir()


def containers() -> None:
    memory_groups()
    run("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "true")


def huge_pages() -> None:
    HUGE_POOL.write_text(HUGE_POOL.read_text())


def memory_poison() -> None:
    # Of no bytes: whether the kernel knows the advice, without a page that is lost for good.
    if libc.madvise(None, ctypes.c_size_t(0), MADV_HWPOISON) != 0:
        raise OSError("the kernel does not know MADV_HWPOISON")
    if not has_capability(21):
        raise PermissionError("CAP_SYS_ADMIN is needed")


def memory_policies() -> None:
    nodes = ctypes.c_ulong(1)
    call("set_mempolicy", MPOL_PREFERRED_MANY, ctypes.byref(nodes), ctypes.c_ulong(64))
    call("set_mempolicy", MPOL_DEFAULT, None, ctypes.c_ulong(0))


def locked_memory() -> None:
    with mmap.mmap(-1, 4 << 20) as memory:
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        if libc.mlock(ctypes.c_void_p(start), ctypes.c_size_t(4 << 20)) != 0:
            raise OSError("4 MiB may not be locked")


def nodes() -> str:
    return Path("/sys/devices/system/node/has_memory").read_text().strip()


def one_node() -> None:
    if not nodes().isdigit():
        raise OSError(f"nodes {nodes()}")


def several_nodes() -> None:
    if nodes().isdigit():
        raise OSError("one node")


def cuda() -> None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise OSError("there is no driver of a GPU, libcuda.so.1") from None
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        raise OSError("the driver has no GPU")


def program(name: str) -> Callable[[], None]:
    def probe() -> None:
        if shutil.which(name) is None:
            raise OSError(f"{name} is not installed")

    return probe


def strace() -> None:
    if shutil.which("strace") is None:
        raise OSError("strace is not installed")
    run("strace", "-qq", "-o", "/dev/null", "true")


def module(name: str) -> Callable[[], None]:
    def probe() -> None:
        if importlib.util.find_spec(name) is None:
            raise OSError(f"the module {name} is not installed")

    return probe


def always() -> None:
    """What the set-up and the build provide."""


def superuser() -> None:
    if os.geteuid() != 0:
        raise OSError("this is not root")


def has_capability(number: int) -> bool:
    status = Path("/proc/self/status").read_text().splitlines()
    effective = next(line for line in status if line.startswith("CapEff:")).split()[1]
    return bool(int(effective, 16) >> number & 1)


def run(*arguments: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(done.stderr.strip())


PROBES: dict[str, Callable[[], None]] = {
    "io-uring": io_uring,
    "direct-io": direct_io,
    "cachestat": cachestat,
    "mounts": mounts,
    "fuse": fuse,
    "memory-groups": memory_groups,
    "containers": containers,
    "huge-pages": huge_pages,
    "memory-poison": memory_poison,
    "memory-policies": memory_policies,
    "locked-memory": locked_memory,
    "one-node": one_node,
    "several-nodes": several_nodes,
    "setpriv": program("setpriv"),
    "strace": strace,
    "cuda": cuda,
    "superuser": superuser,
    "tierfeed": always,
    "hdf5-indexer": always,
    **{f"module-{name}": module(name) if VERSIONS else always for name in MODULES},
    **{f"module-{name}": always if VERSIONS == "newest" else module(name) for name in FRAMEWORKS},
    **{f"module-{name}": module(name) for name in MODULES_IF_INSTALLED},
}


def main() -> None:
    offers = []
    for name, probe in PROBES.items():
        try:
            probe()
            offers.append(name)
            answer = "yes"
        except (OSError, ctypes.ArgumentError) as error:
            offers.append(f"-{name}")
            answer = f"no: {error}"
        if "--explain" in sys.argv[1:]:
            print(f"{name:22} {answer}", file=sys.stderr)
    print(",".join(offers))


if __name__ == "__main__":
    main()
