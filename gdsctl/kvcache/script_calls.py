"""What a Python script's calls are to cuFile: the interface by name, and the memory that it is given, as far as that is written."""

from __future__ import annotations

from collections.abc import Iterable

from gdsctl.kvcache.launch import Call, Launch

# torch's functions that make a tensor, in host memory unless `device` says otherwise (torch.set_default_device as well).
_MADE_BY_TORCH = frozenset(
    [
        "empty",
        "zeros",
        "ones",
        "full",
        "rand",
        "randn",
        "randint",
        "arange",
        "tensor",
        "empty_strided",
        "as_tensor",
        "linspace",
        "UntypedStorage",
    ]
)
_HOST_ONLY = frozenset(("torch.from_numpy", "torch.frombuffer"))
_MADE_BY_ARRAYS = frozenset(
    ["empty", "zeros", "ones", "full", "arange", "array", "asarray", "random", "fromfile", "frombuffer", "empty_like"]
)
# Where fastsafetensors' calls take the device: by position, `cpu` unless it is given (loader.py, parallel_loader.py, auto_loader.py).
_FASTSAFETENSORS_DEVICE = {"SafeTensorsFileLoader": "1", "AutoLoader": "2", "fastsafe_open": "3", "ParallelLoader": "5"}
_REGISTERS = frozenset(("register_memory", "get_reg_descs", "get_xfer_descs"))


def interface(call: Call, launch: Launch) -> str:
    """The call's name as rows of app_edges.toml have it, with what decides: an argument, a variable, the memory."""
    given = call.arguments
    last = call.name.rpartition(".")[2]
    if call.name.startswith("fastsafetensors."):
        place = _FASTSAFETENSORS_DEVICE.get(last, "")
        memory = _memory(call, "device", place, default="cpu")
        return call.name + (" nogds" if given.get("nogds") == "True" else _told(memory))
    if call.name.startswith("instanttensor."):
        chosen = launch.env.get("INSTANTTENSOR_BACKEND")
        asked = given.get("backend") or (chosen.text if chosen is not None else "")
        memory = _memory(call, "device", "2", default="cuda")
        return call.name + (" host" if memory == "host" else " cufile" if asked.upper().startswith("CUFILE") else "")
    if call.name.startswith("kvikio."):
        mode = launch.env.get("KVIKIO_COMPAT_MODE")
        if mode is not None and mode.text.lower() in ("on", "true", "yes", "1"):
            return f"{call.name} compat"
        return call.name + (" host" if _memories(launch.calls) == "host" else "")
    if last == "create_backend":
        name = f"create_backend {given.get('0') or given.get('backend', '')}"
        return name + (" host" if _registered(launch.calls) == {"host"} else "")
    if call.name == "torch.cuda.gds.GdsFile":
        own = _memory(call, "device", "device", default="") if "device" in {*call.arguments, *call.open} else ""
        return call.name + _told(own or _memories(launch.calls))
    return call.name


def _told(memory: str) -> str:
    return f" {memory}" if memory in ("host", "open") else ""


def _memory(call: Call, keyword: str, position: str, *, default: str) -> str:
    """host, gpu or open: the device that a call is given, or has by default."""
    for key in (keyword, position):
        if key in call.arguments:
            return _device(call.arguments[key])
        if key in call.open:
            return _device(call.open[key])
    return _device(default)


def _device(text: str) -> str:
    """`cuda:0`, `torch . device ( "cuda" )`, `f"cuda:{rank}"`, `0`: a GPU; what names both, or neither: open."""
    low = text.lower()
    gpu = "cuda" in low or "vram" in low or low.strip().isdecimal()
    host = "cpu" in low or "dram" in low
    return "open" if gpu == host else "gpu" if gpu else "host"


def _registered(calls: Iterable[Call]) -> set[str]:
    """The memories that NIXL is told of."""
    told = [call for call in calls if call.name.rpartition(".")[2] in _REGISTERS]
    asked = [call.arguments.get("mem_type") or call.arguments.get("1") or "" for call in told]
    return {_device(text) for text in asked if text.upper() != "FILE"}


def _memories(calls: Iterable[Call]) -> str:
    """Where a script keeps its tensors and arrays: host or gpu where all that is written says so, open where it differs.

    Empty: nothing is written. Host memory by default beside some on a GPU is taken for what goes with a GPU's.
    """
    found: set[str] = set()
    by_default = False
    for call in calls:
        library, _, name = call.name.rpartition(".")
        if name in ("cuda", "cpu", "pin_memory") and library != "torch":
            found.add("gpu" if name == "cuda" else "host")
        elif call.name in _HOST_ONLY:
            found.add("host")
        elif name == "set_default_device" or (
            name in ("to", "device") and {"0", "device"} & {*call.arguments, *call.open}
        ):
            memory = _memory(call, "device", "0", default="")
            if memory != "open" or name != "to":  # `.to(torch.float16)` says nothing of a device
                found.add(memory)
        elif library == "torch" and name.removesuffix("_like") in _MADE_BY_TORCH:
            if call.arguments.get("pin_memory") == "True":
                found.add("host")
            elif "device" in call.arguments or "device" in call.open:
                found.add(_memory(call, "device", "device", default=""))
            elif not name.endswith("_like"):
                by_default = True
        elif library in ("numpy", "cupy") and name in _MADE_BY_ARRAYS:
            found.add("host" if library == "numpy" else "gpu")
    if not found:
        return "host" if by_default else ""
    return found.pop() if len(found) == 1 else "open"
