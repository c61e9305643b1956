"""The machine that shim.c plays: its state, written live. The structs are those of shim.c, which checks their size."""

import ctypes
import mmap
import re
from collections.abc import Mapping, Sequence
from ctypes import c_char, c_int32, c_int64, c_uint8, c_uint32, c_uint64
from itertools import count
from pathlib import Path
from typing import get_args

from node_agent.devices.reading import Gpu, Level, MigInstance, Reading

SOURCE = Path(__file__).with_name("shim.c")
FUNCTIONS: Sequence[str] = re.findall(r"^API\((nvml\w+)", SOURCE.read_text(), re.MULTILINE)

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, GPU_IS_LOST, VERSION_MISMATCH, UNKNOWN = 3, 4, 9, 15, 18, 999

_GPUS, _INSTANCES, _LINKS, _PROCESSES, _FUNCTIONS, _EVENTS, _CPU_WORDS, _TEXT, _ADDRESS = 16, 8, 36, 32, 48, 64, 16, 96, 32
_LEVELS: Mapping[Level, int] = dict(zip(get_args(Level), count(0, 10)))
_MIB = 1 << 20
_XID_EVENT = 0x8
_EVERY_EVENT = 0xFFFF
_FABRIC_COMPLETED = 3
_GPU_END, _SWITCH_END = 0, 2
_SWITCH = "0000:c5:00.0"


class _Function(ctypes.Structure):
    _fields_ = (
        ("name", c_char * 56),
        ("calls", c_uint64),
        ("gpus", c_uint32),
        ("delay_ms", c_uint32),
        ("hangs", c_uint32),
        ("code", c_int32),
    )


class _Event(ctypes.Structure):
    _fields_ = (("type", c_uint64), ("data", c_uint64), ("gpu", c_uint32), ("unused", c_uint32))


class _Link(ctypes.Structure):
    _fields_ = (("active", c_uint32), ("type", c_uint32), ("pci", c_char * _ADDRESS))


class _Process(ctypes.Structure):
    _fields_ = (("used", c_uint64), ("pid", c_uint32), ("unused", c_uint32))


class _Device(ctypes.Structure):
    _fields_ = (
        *((name, c_char * size) for name, size in (("uuid", _TEXT), ("name", _TEXT), ("pci", _ADDRESS))),
        *((name, c_uint64) for name in ("total", "used", "wave_us", "wave_low", "wave_high", "events")),
        ("cpus", c_uint64 * _CPU_WORDS),
        *((name, c_int64) for name in ("minor", "utilisation", "recovery", "remap_pending", "remap_failed", "uncorrectable")),
        *((name, c_int64) for name in ("mig", "instances", "links", "processes", "fabric_state", "clique")),
        ("fabric", c_uint8 * 16),
        ("lost", c_uint64),
        ("power_mw", c_int64),
        ("power_us", c_uint64),
        ("link", _Link * _LINKS),
        ("process", _Process * _PROCESSES),
    )


class _State(ctypes.Structure):
    _fields_ = (
        *((name, c_uint64) for name in ("size", "gpus", "written")),
        ("driver", c_char * _TEXT),
        ("nvml", c_char * _TEXT),
        ("level", c_int64 * _GPUS * _GPUS),
        ("function", _Function * _FUNCTIONS),
        ("event", _Event * _EVENTS),
        ("device", _Device * _GPUS),
        ("instance", _Device * _INSTANCES * _GPUS),
    )


class Shim:
    """A machine. GPUs are named by their place in the reading, MIG instances by (GPU, instance)."""

    def __init__(self, path: Path, library: Path) -> None:
        self.path = path
        self.library = library
        self.sysfs = path.with_name(f"{path.name}.sysfs")
        """In the place of /sys/bus/pci/devices."""
        path.write_bytes(bytes(ctypes.sizeof(_State)))
        with path.open("r+b") as file:
            self._state = _State.from_buffer(mmap.mmap(file.fileno(), 0))
        for function, name in zip(self._state.function, FUNCTIONS, strict=False):
            function.name = name.encode()
        self._state.size = ctypes.sizeof(_State)

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that is to meet this machine."""
        return {"EBB_NVML_SHIM": str(self.path), "LD_LIBRARY_PATH": str(self.library.parent)}

    def load(self, reading: Reading) -> None:
        """Becomes the machine that was read so: all idle, and nothing wrong with it."""
        state = self._state
        state.driver, state.nvml = reading.driver.encode(), reading.nvml.encode()
        places = {gpu.uuid: place for place, gpu in enumerate(reading.gpus)}
        for place, gpu in enumerate(reading.gpus):
            state.device[place] = _gpu(gpu)
            for slot, instance in enumerate(gpu.mig or ()):
                state.instance[place][slot] = _instance(instance, gpu)
            for _ in range(gpu.switch_links):
                _connect(state.device[place], _SWITCH_END, _SWITCH)
        for pair in reading.pairs:
            a, b = places[pair.a], places[pair.b]
            level = -1 if pair.level is None else _LEVELS[pair.level]
            state.level[a][b] = state.level[b][a] = level
            for _ in range(pair.links):
                _connect(state.device[a], _GPU_END, reading.gpus[b].pci)
                _connect(state.device[b], _GPU_END, reading.gpus[a].pci)
        state.gpus = len(reading.gpus)
        for gpu in reading.gpus:
            told = self.sysfs / gpu.pci
            told.mkdir(parents=True, exist_ok=True)
            (told / "numa_node").write_text(f"{-1 if gpu.numa_node is None else gpu.numa_node}\n")
            (told / "local_cpulist").write_text(",".join(map(str, gpu.cpus)) + "\n")

    def memory(self, gpu: int | tuple[int, int], mib: int) -> None:
        device = self._device(gpu)
        device.wave_us, device.used = 0, mib * _MIB

    def wave(self, gpu: int | tuple[int, int], period_seconds: float, low_mib: int, high_mib: int) -> None:
        """Its memory climbs from low to high through each period, as a mini-batch's does, from now on."""
        device = self._device(gpu)
        device.wave_low, device.wave_high = low_mib * _MIB, high_mib * _MIB
        device.wave_us = round(period_seconds * 1_000_000)

    def power(self, gpu: int, watts: int, period_seconds: float = 0.0) -> None:
        """Its power; with a period, only through the first three fifths of each, and two fifths of it through the rest."""
        device = self._device(gpu)
        device.power_mw, device.power_us = watts * 1000, round(period_seconds * 1_000_000)

    def utilisation(self, gpu: int, percent: int | None) -> None:
        self._device(gpu).utilisation = -1 if percent is None else percent

    def processes(self, gpu: int | tuple[int, int], used_mib: Mapping[int, int | None]) -> None:
        """pid -> MiB; None where the driver does not say how much."""
        device = self._device(gpu)
        for process, (pid, mib) in zip(device.process, used_mib.items(), strict=False):
            process.pid, process.used = pid, (1 << 64) - 1 if mib is None else mib * _MIB
        device.processes = len(used_mib)

    def xid(self, gpu: int, number: int) -> None:
        self.event(gpu, _XID_EVENT, number)

    def event(self, gpu: int, kind: int, data: int = 0) -> None:
        self._state.event[self._state.written % _EVENTS] = _Event(kind, data, gpu)
        self._state.written += 1

    def health(
        self, gpu: int, *, recovery: int = 0, remap_pending: bool = False, remap_failed: bool = False, uncorrectable: int = 0
    ) -> None:
        """What the driver says when it is asked, as it does of a healthy GPU unless told otherwise."""
        device = self._device(gpu)
        device.recovery, device.uncorrectable = recovery, uncorrectable
        device.remap_pending, device.remap_failed = remap_pending, remap_failed

    def lose(self, gpu: int, lost: bool = True) -> None:
        self._device(gpu).lost = lost

    def fail(self, function: str, code: int, gpu: int | None = None) -> None:
        """From now on; code 0 ends it."""
        entry = self._function(function, gpu)
        entry.code = code

    def delay(self, function: str, milliseconds: int, gpu: int | None = None) -> None:
        self._function(function, gpu).delay_ms = milliseconds

    def hang(self, function: str, hangs: bool = True, gpu: int | None = None) -> None:
        self._function(function, gpu).hangs = hangs

    def calls(self, function: str) -> int:
        return int(self._function(function).calls)

    def _function(self, name: str, gpu: int | None = None) -> _Function:
        entry: _Function = self._state.function[FUNCTIONS.index(name)]
        entry.gpus = (1 << _GPUS) - 1 if gpu is None else 1 << gpu
        return entry

    def _device(self, gpu: int | tuple[int, int]) -> _Device:
        found: _Device = self._state.device[gpu] if isinstance(gpu, int) else self._state.instance[gpu[0]][gpu[1]]
        return found


def _gpu(gpu: Gpu) -> _Device:
    device = _Device(
        uuid=gpu.uuid.encode(),
        name=gpu.name.encode(),
        pci=_address(gpu.pci),
        total=gpu.memory_mib * _MIB,
        events=_EVERY_EVENT,
        power_mw=-1,
        minor=-1 if gpu.minor is None else gpu.minor,
        mig=0 if gpu.mig is None else 1,
        instances=len(gpu.mig or ()),
    )
    for cpu in gpu.cpus:
        device.cpus[cpu // 64] |= 1 << cpu % 64
    if gpu.fabric:
        cluster, _, clique = gpu.fabric.rpartition("/")
        device.fabric_state, device.clique = _FABRIC_COMPLETED, int(clique)
        device.fabric[:] = bytes.fromhex(cluster.replace("-", ""))
    return device


def _instance(instance: MigInstance, gpu: Gpu) -> _Device:
    return _Device(
        uuid=instance.uuid.encode(),
        name=instance.name.encode(),
        pci=_address(gpu.pci),
        total=instance.memory_mib * _MIB,
        utilisation=-1,
        power_mw=-1,
    )


def _connect(device: _Device, kind: int, pci: str) -> None:
    device.link[device.links] = _Link(1, kind, _address(pci))
    device.links += 1


def _address(pci: str) -> bytes:
    """As NVML writes it: the domain with eight digits, in capitals."""
    domain, rest = pci.split(":", 1)
    return f"{int(domain, 16):08X}:{rest.upper()}".encode()
