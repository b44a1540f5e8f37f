"""Unpacks the ELF image inside a bzImage: QEMU boots it at once, without the BIOS and real mode.

usage: unpack_kernel.py VMLINUZ VMLINUX
"""

import subprocess
import sys
from pathlib import Path

# First bytes of each packed form, and the tool that unpacks it from standard input.
FORMS = {
    b"\x28\xb5\x2f\xfd": ["zstd", "-dc"],
    b"\xfd7zXZ\x00": ["xz", "-dc"],
    b"\x1f\x8b\x08": ["gzip", "-dc"],
}


def unpack(image: bytes) -> bytes | None:
    """The first ELF file that a packed stream in `image` unpacks to."""
    for magic, command in FORMS.items():
        start = image.find(magic)
        while start >= 0:
            # Bytes behind the stream make the tool fail after it wrote all of its output.
            done = subprocess.run(command, input=image[start:], capture_output=True, check=False)
            if done.stdout.startswith(b"\x7fELF"):
                return done.stdout
            start = image.find(magic, start + 1)
    return None


def main() -> None:
    """Reads the first argument, writes the second."""
    source, target = map(Path, sys.argv[1:])
    kernel = unpack(source.read_bytes())
    if kernel is None:
        sys.exit(f"{source}: no packed ELF image inside")
    target.write_bytes(kernel)


main()
