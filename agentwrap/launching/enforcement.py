"""From a policy to what the kernel is asked to hold of it: mounts, a Landlock domain, and what is left to the stop.

Pure: knows rules, paths and what `Disk` says is there; makes no mount itself (`launching.mounts` and
`launching.landlock` do).
"""

import msgspec

# linux/landlock.h, LANDLOCK_ACCESS_FS_*
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
CHANGES_OF_FOLDERS = 0b1_1111_1111 << 4  # remove and make, of every kind
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
CONNECT_TCP = 1 << 1
SCOPE_ABSTRACT, SCOPE_SIGNAL = 1, 2


class Private(msgspec.Struct, frozen=True):
    """What the machine mounts later does not arrive: it would be writable."""

    def __str__(self) -> str:
        return "make all mounts private"


class Hold(msgspec.Struct, frozen=True):
    """Keep the tree of mounts at a path as it is now, for `Put`."""

    path: str

    def __str__(self) -> str:
        return f"hold {self.path}"


class ReadOnly(msgspec.Struct, frozen=True):
    """The mount at a path, which is a mount point, and all below it become read-only."""

    path: str

    def __str__(self) -> str:
        return f"read-only {self.path}"


class Put(msgspec.Struct, frozen=True):
    """What was held comes back on top."""

    path: str

    def __str__(self) -> str:
        return f"put back {self.path}"


class Bind(msgspec.Struct, frozen=True):
    """A path is mounted on itself, which by itself keeps it from being renamed, replaced or removed."""

    path: str
    read_only: bool = False
    no_exec: bool = False

    def __str__(self) -> str:
        words = ["bind", *(["read-only"] if self.read_only else []), *(["not to be run"] if self.no_exec else [])]
        return f"{' '.join(words)} {self.path}"


class Mask(msgspec.Struct, frozen=True):
    """An empty file or folder, which nobody can change, lies over a path."""

    path: str

    def __str__(self) -> str:
        return f"mask {self.path}"


class Devices(msgspec.Struct, frozen=True):
    """/dev has these and no others."""

    paths: tuple[str, ...]

    def __str__(self) -> str:
        return "devices"


Step = Private | Hold | ReadOnly | Put | Bind | Mask | Devices


class MountPlan(msgspec.Struct, frozen=True):
    """Steps in the order in which they are made."""

    steps: tuple[Step, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps)


class LandlockPlan(msgspec.Struct, frozen=True):
    """A Landlock domain: bits of linux/landlock.h that are handled, and (path, rights) that are granted."""

    handled_files: int = 0
    handled_ports: int = 0
    scoped: int = 0
    granted: tuple[tuple[str, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.handled_files or self.handled_ports or self.scoped)
