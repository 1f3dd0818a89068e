# ruff: noqa: SIM905, N818, PLW2901, PLR0917, SIM114, PLW1510 - one table and one dialogue, read as a whole
# mypy: disable-error-code="type-arg,no-untyped-def,no-untyped-call,no-any-return,assignment,dict-item,arg-type,misc"
# The library answers in free-form JSON; types would say Any everywhere.
"""Ask the real libcufile what it makes of a cufile.json, on a machine with no GPU.

    oracle.py cufile.json            prints {"accepted": ..., "effective": {...}, "log": [...], ...}
    oracle.py -                      the same, reading the JSON from standard input
    oracle.py --lib PATH ...         which libcufile: a .so, a wheel, or a folder that holds either
    oracle.py none --root DIR --topology     what it makes of the node whose /sys and /proc lie in DIR

NVIDIA's own library (from the nvidia-cufile or nvidia-cufile-cu12 wheel) is loaded in a child process
over fakecuda.c, a stand-in for libcuda.so.1 with one pretend GPU. The child opens the cuFile driver
with CUFILE_ENV_PATH_JSON set, reads the configuration back through the public API, and closes it. The
parent adds what the library wrote to stdout and to its TRACE log. Nothing needs a GPU, root or network,
except that a pretend /sys (--root) needs root or unprivileged user namespaces.

Exit status: 0 accepted and opened, 1 refused, 2 bad usage, 3 the oracle cannot run here (no library,
no C compiler), 4 the library crashed or hung.

Needs Linux on x86-64, Python 3.9+, a C compiler (cc), libudev and libmount (libcufile loads both).
"""

from __future__ import annotations

import argparse
import ctypes
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Enumerators of cufile.h in order; append-only from 1.14, where the API appears, to 1.20.
SIZES = """profile.cufile_stats execution.max_io_queue_depth execution.max_io_threads
 execution.min_io_threshold_size_kb execution.max_request_parallelism properties.max_direct_io_size_kb
 properties.max_device_cache_size_kb properties.per_buffer_cache_size_kb
 properties.max_device_pinned_mem_size_kb properties.io_batchsize properties.poll_mode_max_size_kb
 properties.max_batch_io_timeout_msecs""".split()
BOOLS = """properties.use_poll_mode properties.allow_compat_mode properties.force_compat_mode
 miscellaneous.api_check_aggressive execution.parallel_io profile.nvtx properties.allow_system_memory
 properties.use_pci_p2pdma properties.prefer_iouring properties.force_odirect_mode
 miscellaneous.skip_topology_detection miscellaneous.stream_memops_bypass
 properties.vanilla_posix_io_mode properties.gds_fallback_io""".split()
STRINGS = ["logging.level", "CUFILE_LOGFILE_PATH", "logging.dir", "RDMA_TRANSPORT"]

# Keys of the file that the library's own dump of the configuration spells otherwise.
SLABS = "properties.gpu_bounce_buffer_slab_config"
ECHOED_AS = {
    "properties.allow_compat_mode": "properties.use_compat_mode",
    "properties.io_batchsize": "properties.max_batch_io_size",
    "properties.rdma_load_balancing_policy": "properties.rdma_peer_affinity_policy",
    f"{SLABS}.slab_size_kb": "properties.gpu_bounce_buffer_slab_size_kb",
    f"{SLABS}.slab_count": "properties.gpu_bounce_buffer_slab_count",
}
OVERRIDDEN = {"logging.level"}  # the oracle sets TRACE itself

# CUfileOpError, and the negative errno values that libcufile up to 1.18 returns instead.
ERRORS = {
    0: "CU_FILE_SUCCESS",
    5001: "CU_FILE_DRIVER_NOT_INITIALIZED",
    5002: "CU_FILE_DRIVER_INVALID_PROPS",
    5003: "CU_FILE_DRIVER_UNSUPPORTED_LIMIT",
    5004: "CU_FILE_DRIVER_VERSION_MISMATCH",
    5005: "CU_FILE_DRIVER_VERSION_READ_ERROR",
    5007: "CU_FILE_PLATFORM_NOT_SUPPORTED",
    5009: "CU_FILE_DEVICE_NOT_SUPPORTED",
    5011: "CU_FILE_CUDA_DRIVER_ERROR",
    5022: "CU_FILE_INVALID_VALUE",
    5025: "CU_FILE_PERMISSION_DENIED",
    5030: "CU_FILE_INTERNAL_ERROR",
    5033: "CU_FILE_NVFS_SETUP_ERROR",
    -22: "-EINVAL",
    -12: "-ENOMEM",
    -2: "-ENOENT",
    -19: "-ENODEV",
}

# What the nvidia-fs kernel driver shows when every module that it serves is there.
NVIDIA_FS = {
    "devcount": "1",
    "version": "version: 2.28",
    "bridges": "",
    "peer_distance": "",
    "modules": "\n".join(
        f"{name}: 1"
        for name in (
            "nvme nvme_rdma scsi_mod sfxvdriver nvmeib_common lnet beegfs mmfslinux rpcrdma wekafsio scatefs"
        ).split()
    ),
}

CONFIG_FAILURE = re.compile(
    r"configuration load error|failed to load (user )?config|invalid json config|"
    r"error reading config|json type mismatch|error loading \w+ mount table"
)
ROUTINE = re.compile(r"^(cuFile configuration load error|cuFile initialization failed)$")
STAMP = re.compile(r"^ ?\d\d-\d\d-\d{4} [\d:]+ \[pid=\d+ tid=\d+\] ")
DUMP = re.compile(
    r"^INFO +\S+ +((?:properties|fs|profile|miscellaneous|execution|sparse|block|denylist|logging)"
    r"\.[\w.]+) *: ?(.*)$"
)
MOUNT = re.compile(r"^INFO +\S+ +(/.*?) +dev_id \d+ : (.*)$")
DRIVER = re.compile(r"^INFO +\S+ +(?:--)?(\w[\w /]*?) *: (.*)$")


class Unavailable(RuntimeError):
    """The oracle cannot run on this machine; the message says why."""


# ---------------------------------------------------------------- the library and the stand-in


def find_library(where: str | os.PathLike | None = None) -> Path:
    """The libcufile.so.0 that WHERE names: itself, inside a wheel, or inside a folder.

    With no WHERE: $LIBCUFILE, then this interpreter's site-packages, then the system's CUDA.
    """
    where = where or os.environ.get("LIBCUFILE")
    if where is None:
        places = [f"{sysconfig.get_path(kind)}/nvidia/*/lib/libcufile.so.0" for kind in ("purelib", "platlib")]
        places += [
            "/usr/local/cuda*/targets/*/lib/libcufile.so.0",
            "/usr/local/cuda*/lib64/libcufile.so.0",
            "/usr/lib/x86_64-linux-gnu/libcufile.so.0",
        ]
        for place in places:
            if hits := sorted(glob.glob(place)):
                return Path(hits[-1]).resolve()
        raise Unavailable("no libcufile here: pip install nvidia-cufile, or set LIBCUFILE, or pass --lib")
    path = Path(where)
    if path.is_dir():
        hits = sorted(path.rglob("libcufile.so.0")) or sorted(path.glob("nvidia_cufile*.whl"))
        if not hits:
            raise Unavailable(f"no libcufile.so.0 under {path}")
        path = hits[-1]
    if path.suffix == ".whl":
        target = _cache() / path.stem
        if not target.is_dir():
            partial = Path(tempfile.mkdtemp(dir=target.parent))
            with zipfile.ZipFile(path) as wheel:
                wheel.extractall(partial, [n for n in wheel.namelist() if re.search(r"/lib/libcufile[\w.]*$", n)])
            try:
                partial.rename(target)
            except OSError:  # another process was first
                shutil.rmtree(partial)
        path = next(target.rglob("libcufile.so.0"))
    if not path.is_file():
        raise Unavailable(f"no such library: {path}")
    return path.resolve()


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    path = Path(base) / "cufile-oracle" if base else Path(tempfile.gettempdir()) / f"cufile-oracle-{os.getuid()}"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.stat().st_uid != os.getuid():
        raise Unavailable(f"{path} belongs to someone else")
    return path


def build_stub() -> Path:
    """fakecuda.c compiled to libcuda.so.1, kept by the hash of its source."""
    source = HERE / "fakecuda.c"
    out = _cache() / hashlib.sha256(source.read_bytes()).hexdigest()[:16] / "libcuda.so.1"
    if out.is_file():
        return out
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise Unavailable("no C compiler (cc) to build the stand-in libcuda")
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f"{os.getpid()}.so")
    made = subprocess.run(
        [compiler, "-O1", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", part, source, "-ldl"],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        raise Unavailable(f"the stand-in libcuda does not build: {made.stderr.strip()}")
    part.replace(out)
    return out


# ---------------------------------------------------------------- the child: the only code that loads libcufile


class _Error(ctypes.Structure):
    _fields_ = [("err", ctypes.c_int), ("cu", ctypes.c_int)]


class _Props(ctypes.Structure):  # CUfileDrvProps_t
    _fields_ = [
        ("major_version", ctypes.c_uint),
        ("minor_version", ctypes.c_uint),
        ("poll_thresh_size", ctypes.c_size_t),
        ("max_direct_io_size", ctypes.c_size_t),
        ("dstatusflags", ctypes.c_uint),
        ("dcontrolflags", ctypes.c_uint),
        ("fflags", ctypes.c_uint),
        ("max_device_cache_size", ctypes.c_uint),
        ("per_buffer_cache_size", ctypes.c_uint),
        ("max_device_pinned_mem_size", ctypes.c_uint),
        ("max_batch_io_size", ctypes.c_uint),
        ("max_batch_io_timeout_msecs", ctypes.c_uint),
    ]


def _probe(lib, documents: dict[str, str]) -> dict[str, dict]:
    """Open the driver once for each document, each in a fork that has only just loaded the library."""
    answers = {}
    for name, text in documents.items():
        Path("probe.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        with open("probe.out", "wb+") as said:
            pid = os.fork()
            if pid == 0:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                signal.alarm(20)
                os.environ.update(CUFILE_ENV_PATH_JSON="probe.json", CUFILE_LOGFILE_PATH=os.path.abspath("probe.log"))
                lib.cuFileDriverOpen.restype = _Error
                code = lib.cuFileDriverOpen().err
                ctypes.CDLL(None).fflush(None)
                os.write(1, f"\n\0{code}".encode())
                os._exit(0)
            status = os.waitpid(pid, 0)[1]
            said.seek(0)
            text, _, code = said.read().decode(errors="replace").partition("\0")
        answers[name] = {
            "code": int(code) if code else None,
            "said": [x.strip() for x in text.splitlines() if x.strip()],
        }
        if status:
            answers[name]["status"] = status
    return answers


def _child(library: str, topology: str | None, set_before: dict, probes: dict, answer: int) -> None:
    lib = ctypes.CDLL(library)
    out: dict = {}

    def call(name, *args):
        function = getattr(lib, name, None)
        if function is None:
            return None
        function.restype = _Error
        return function(*args)

    def tell():
        raw = json.dumps(out).encode()
        os.pwrite(answer, raw, 0)
        os.ftruncate(answer, len(raw))

    if probes:
        out["probes"] = _probe(lib, probes)
    version = ctypes.c_int()
    call("cuFileGetVersion", ctypes.byref(version))
    out["api_version"] = version.value
    tell()
    for key, value in set_before.items():
        if key in SIZES:
            result = call("cuFileSetParameterSizeT", SIZES.index(key), ctypes.c_size_t(value))
        elif key in BOOLS:
            result = call("cuFileSetParameterBool", BOOLS.index(key), ctypes.c_bool(value))
        else:
            result = call("cuFileSetParameterString", STRINGS.index(key), ctypes.c_char_p(str(value).encode()))
        out.setdefault("set", {})[key] = None if result is None else result.err
    opened = call("cuFileDriverOpen")
    out["open"] = {"code": opened.err, "name": ERRORS.get(opened.err, str(opened.err)), "cuda": opened.cu}
    tell()
    if opened.err == 0:
        parameters = out["parameters"] = {}
        limits = out["limits"] = {}
        for i, key in enumerate(SIZES):
            value, low, high = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
            if (result := call("cuFileGetParameterSizeT", i, ctypes.byref(value))) and result.err == 0:
                parameters[key] = value.value
            if (
                result := call("cuFileGetParameterMinMaxValue", i, ctypes.byref(low), ctypes.byref(high))
            ) and result.err == 0:
                limits[key] = [low.value, high.value]
        for i, key in enumerate(BOOLS):
            flag = ctypes.c_bool()
            if (result := call("cuFileGetParameterBool", i, ctypes.byref(flag))) and result.err == 0:
                parameters[key] = flag.value
        for i, key in enumerate(STRINGS):
            text = ctypes.create_string_buffer(4096)
            if (result := call("cuFileGetParameterString", i, text, len(text))) and result.err == 0:
                parameters[key] = text.value.decode(errors="replace")
        props = _Props()
        if (result := call("cuFileDriverGetProperties", ctypes.byref(props))) and result.err == 0:
            out["properties"] = {name: getattr(props, name) for name, _ in _Props._fields_}
        if topology and (result := call("cuFileExportPCIeTopology", ctypes.c_char_p(topology.encode()))):
            out["topology_code"] = result.err
        tell()
        out["close"] = call("cuFileDriverClose").err
    out["done"] = True
    tell()
    ctypes.CDLL(None).fflush(None)
    os._exit(0)  # the library's own threads may outlive it


# ---------------------------------------------------------------- the parent


def ask(
    config: str | bytes | dict | None,
    *,
    lib: str | os.PathLike | None = None,
    root: str | os.PathLike | None = None,
    gpus: list[str] | None = None,
    nvidia_fs: bool | None = None,
    assume_paths: bool = True,
    unknown: bool = True,
    env: dict[str, str | None] | None = None,
    set_before: dict | None = None,
    probes: dict[str, str] | None = None,
    topology: bool = False,
    timeout: float = 60,
    verbose: bool = False,
) -> dict:
    """What libcufile makes of CONFIG: the text of a cufile.json, a mapping, or None for no file at all.

    root: folder laid out like / whose files stand for the machine's own. A `sys` in it replaces /sys whole;
        other files shadow one by one.
    gpus: PCI addresses of the pretend GPUs; by default those in root/sys, or one at 0000:17:00.0.
    nvidia_fs: pretend that the nvidia-fs driver is loaded with every module, so that a configuration with
        allow_compat_mode false opens too. By default yes without a root, and with one only what it holds.
    assume_paths: pretend that the mount points, log folder and block devices that CONFIG names exist
        (libcufile refuses the file otherwise); those that had to be pretended are listed under `assumed`.
    unknown: also find the keys that this libcufile ignores because it does not know them.
    env: more environment for the library, None to remove; CUFILE_* or the FAKECUDA_* of fakecuda.c.
    set_before: parameters to set through cuFileSetParameter* before the driver is opened.
    probes: further documents to open first, each on its own; answers under `probes`.

    Keys of the answer:
      accepted      the library read CONFIG without refusing it
      opened        cuFileDriverOpen returned 0; open: its code, name and CUDA code
      clean         accepted and opened with nothing complained of, changed, or unknown
      reason        the library's words, where it refused; broken: how it died, where it did
      complaints    what it printed about CONFIG although it accepted it
      effective     the configuration as the library dumps it in its log, values typed
      parameters    the same through cuFileGetParameter* (1.14 and later); limits: [min, max] (1.15 and later)
      changed       keys of CONFIG whose effective value is another: {key: {"asked":, "got":}}
      unknown       keys of CONFIG that this libcufile ignores
      unechoed      keys it knows but never shows, so that only their type and range were checked
      driver        the DRIVER CONFIGURATION section: {"NVMe": "compat", ...}
      platform      what it made of the node: {"gpus": [...], "paths": {...}, "peers": [...], "arch": ...}
      topology      the export of cuFileExportPCIeTopology (1.17 and later), where asked for
      log           its log lines at INFO and above, without time stamps (all if verbose); stdout, stderr
    """
    library, stub = find_library(lib), build_stub()
    root = Path(root).resolve() if root is not None else None
    own_sys = root is not None and (root / "sys").is_dir()
    leaves = dict(_leaves(config))
    documents = dict(probes or {})
    if unknown:
        documents.update({f"?{key}": _wrong_type(key) for key in leaves})
    work = Path(tempfile.mkdtemp(prefix="cufile-oracle-"))
    try:
        shadow = work / "root"
        if root is not None:
            shutil.copytree(root, shadow, symlinks=True, ignore=lambda d, names: ["sys"] if Path(d) == root else [])
        assumed = _furnish(shadow, leaves if assume_paths else {}, root is None if nvidia_fs is None else nvidia_fs)
        if gpus is None:
            gpus = _gpus_in(root) if own_sys else ["0000:17:00.0"]
        environment: dict[str, str | None] = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(work),
            "LC_ALL": "C",
            "LD_PRELOAD": str(stub),
            "FAKEROOT": str(shadow),
            "FAKECUDA_GPUS": ",".join(gpus),
            "SYSTEMD_DEVICE_VERIFY_SYSFS": "0",
            "CUFILE_LOGGING_LEVEL": "TRACE",
            "CUFILE_LOGFILE_PATH": str(work / "cufile.log"),
        }
        if config is not None:
            text = config if isinstance(config, (str, bytes)) else json.dumps(config)
            (work / "cufile.json").write_bytes(
                text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
            )
            environment["CUFILE_ENV_PATH_JSON"] = str(work / "cufile.json")
        environment.update(env or {})
        answer = os.open(work / "answer", os.O_RDWR | os.O_CREAT, 0o600)
        (work / "request").write_text(
            json.dumps(
                {
                    "library": str(library),
                    "topology": str(work / "topology.json") if topology else None,
                    "set_before": set_before or {},
                    "probes": documents,
                    "answer": answer,
                }
            )
        )
        command = (_in_namespace(root) if own_sys else []) + [
            sys.executable,
            "-I",
            __file__,
            "--child",
            str(work / "request"),
        ]
        try:
            done = subprocess.run(
                command,
                cwd=work,
                env={k: v for k, v in environment.items() if v is not None},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                pass_fds=[answer],
                timeout=timeout,
            )
            status, stdout, stderr = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            status, stdout, stderr = "timeout", late.stdout or b"", late.stderr or b""
        finally:
            os.close(answer)

        def clean(raw: str) -> list[str]:
            lines = (STAMP.sub("", line).strip().replace(f"{work}/", "") for line in raw.splitlines())
            return [line for line in lines if line]

        told = json.loads((work / "answer").read_text().replace(f"{work}/", "") or "{}")
        log = work / "cufile.log"
        result = _judge(
            leaves,
            told,
            status,
            clean(stdout.decode(errors="replace")),
            clean(stderr.decode(errors="replace")),
            clean(log.read_text(errors="replace")) if log.is_file() else [],
            gpus,
            assumed,
            verbose,
        )
        result["library"]["path"] = str(library)
        if (work / "topology.json").is_file():
            result["topology"] = json.loads(_without_comments((work / "topology.json").read_text(errors="replace")))
        return result
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _furnish(shadow: Path, leaves: dict, nvidia_fs: bool) -> list[str]:
    """Add to the shadow what libcufile cannot do without; the paths of the configuration that were pretended."""

    def put(name: str, text: str) -> None:
        path = shadow / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n" if text else "")

    if not os.path.exists("/proc/modules"):  # without one libcufile reads it in a loop that never ends
        put("proc/modules", "pretend 16384 0 - Live 0x0000000000000000")
    put("etc/cufile.json", "{}")  # the machine's own would be read first and mixed in
    if nvidia_fs:
        for name, text in NVIDIA_FS.items():
            put(f"proc/driver/nvidia-fs/{name}", text)
    if (shadow / "proc/driver/nvidia-fs/devcount").exists():
        put("dev/nvidia-fs0", "")
    folders, files = [], []
    for key, value in leaves.items():
        if key == "logging.dir":
            folders.append(value)
        elif key.endswith(".mount_table") and isinstance(value, dict):
            folders += value
        elif key == "denylist.mounts" and isinstance(value, list):
            folders += value
        elif key == "denylist.devices" and isinstance(value, list):
            files += value
    assumed = []
    for path in folders + files:
        if (
            isinstance(path, str)
            and path.startswith("/")
            and ".." not in path.split("/")
            and "\0" not in path
            and not os.path.exists(path)
            and not (shadow / path[1:]).exists()
        ):
            try:
                if path in files:
                    put(path[1:], "")
                else:
                    (shadow / path[1:]).mkdir(parents=True)
            except OSError:
                continue
            assumed.append(path)
    return assumed


def _gpus_in(root: Path) -> list[str]:
    def holds(path: Path, start: str) -> bool:
        return path.is_file() and path.read_text(errors="replace").startswith(start)

    return [
        d.name
        for d in sorted((root / "sys/bus/pci/devices").glob("*"))
        if holds(d / "vendor", "0x10de") and holds(d / "class", "0x03")
    ]


def _in_namespace(root: Path) -> list[str]:
    for flags in (["-m"], ["-rm"]):
        if shutil.which("unshare") and subprocess.run(["unshare", *flags, "true"], capture_output=True).returncode == 0:
            script = 'mount --rbind "$1" /sys || exit 99; shift; exec "$@"'
            return ["unshare", *flags, "--propagation", "private", "sh", "-c", script, "sh", str(root / "sys")]
    raise Unavailable("a pretend /sys needs a mount namespace: be root, or allow unprivileged user namespaces")


def _judge(leaves, told, status, stdout, stderr, log, gpus, assumed, verbose) -> dict:
    effective, driver, section, table, version = {}, {}, "", None, None
    for line in log:
        if "DRIVER CONFIGURATION:" in line or "CUFILE CONFIGURATION:" in line or "GPU INFO:" in line:
            section = line.split()[2]
        elif match := DUMP.match(line):
            table = match[1] if match[1].endswith(".mount_table") else None
            effective[match[1]] = {} if table else _typed(match[2])
        elif table and (match := MOUNT.match(line)):
            effective[table][match[1]] = match[2].split()
        elif section == "DRIVER" and (match := DRIVER.match(line)):
            driver[match[1]] = match[2].strip()
        if match := re.search(r"GDS release version: (\S+)", line):
            version = match[1]
    opened = told.get("open") or {}
    failures = [line for line in stdout + log if CONFIG_FAILURE.search(line)]
    alive = bool(told.get("done"))
    result: dict = {
        "accepted": alive and not failures,
        "opened": alive and opened.get("code") == 0,
        "clean": False,
        "library": {"version": version, "api_version": told.get("api_version")},
        "open": opened or None,
    }
    if not alive:
        result["broken"] = (
            "hung: no answer in time"
            if status == "timeout"
            else f"died with status {status}" + (f": {stderr[-1]}" if stderr else "")
        )
    # a pretended block device is a plain file, which libcufile mentions and passes over
    said = [
        line
        for line in stdout
        if not ROUTINE.match(line)
        and not ("found invalid block device" in line and any(path in line.split() for path in assumed))
    ]
    if not result["accepted"] or not result["opened"]:
        result["reason"] = said or [line for line in log if line.startswith("ERROR")][-3:] or stderr[-3:]
    result["complaints"] = said if result["accepted"] and result["opened"] else []
    result["effective"] = effective
    for key in ("parameters", "limits", "properties", "set", "close", "topology_code"):
        if key in told:
            result[key] = told[key]
    asked = told.get("probes", {})
    ignored = [key for key in leaves if f"?{key}" in asked and not _knows(key, asked[f"?{key}"])]
    changed, unechoed = {}, []
    for key, value in leaves.items():
        if key in ignored or key in OVERRIDDEN:
            continue
        got = effective.get(ECHOED_AS.get(key, key), told.get("parameters", {}).get(key, ...))
        if got is ...:
            unechoed.append(key)
        elif not _same(value, got):
            changed[key] = {"asked": value, "got": got}
    result.update(changed=changed if effective else {}, unknown=ignored, unechoed=unechoed if effective else [])
    result["clean"] = bool(result["opened"] and result["accepted"] and not (changed or ignored or result["complaints"]))
    if own := {name: answer for name, answer in asked.items() if not name.startswith("?")}:
        result["probes"] = own
    result["driver"], result["platform"] = driver, _platform(log, gpus)
    result["assumed"] = assumed
    result["log"] = log if verbose else [line for line in log if not line.startswith(("TRACE", "DEBUG"))]
    result["stdout"], result["stderr"] = stdout, stderr
    return result


def _platform(log: list[str], gpus: list[str]) -> dict:
    found: dict = {"gpus": [{"index": i, "bdf": bdf} for i, bdf in enumerate(gpus)], "paths": {}, "peers": []}
    last = None
    for line in log:
        if match := re.search(r"device pci path string : (\S+)$", line):
            hops = match[1].split("->")
            found["paths"][hops[0]] = hops
        elif match := re.search(r"GPU Dev: (\d+) numa_node: (-?\d+) PCI Group (\S+)", line):
            found["gpus"][int(match[1])].update(numa=int(match[2]), pci_group=match[3])
        elif match := re.search(r"GPU index (\d+) .* bar:(\d+) bar size \(MiB\):(\d+) (.*), IOMMU State: (.*)$", line):
            found["gpus"][int(match[1])].update(bar=int(match[2]), bar_mib=int(match[3]), gds=match[4], iommu=match[5])
        elif match := re.search(
            r" (\S+) peer link-speed: (\d+) peer link-width: (\d+) peer rank: (\d+) numa_distance: (\d+)", line
        ):
            last = {
                "peer": match[1],
                "gen": int(match[2]),
                "width": int(match[3]),
                "rank": int(match[4]),
                "numa_distance": int(match[5]),
            }
        elif last and (match := re.search(r"GPU: (\S+) Peer: (\S+) GPU socket: (-?\d+) peer socket: (-?\d+)", line)):
            peer = {"gpu": match[1], **last, "gpu_socket": int(match[3]), "peer_socket": int(match[4])}
            if match[2] == last["peer"] and peer not in found["peers"]:
                found["peers"].append(peer)
            last = None
        elif match := re.search(r" IOMMU: (.*)$", line):
            found["iommu"] = match[1]
        elif match := re.search(r"Nvidia Driver Info Status: (.*)$", line):
            found["driver"] = match[1]
        elif match := re.search(r"((?:Platform: .*, )?Arch: .*)$", line):
            found["arch"] = match[1]
    return found


def _wrong_type(key: str) -> str:
    """A document that gives KEY a value of a type no key has, so that a library that knows it must object."""
    if key.startswith(f"{SLABS}."):
        key, value = SLABS, {"slab_size_kb": "x", "slab_count": "x"}
    else:
        value = "x" if key.endswith(".mount_table") else {}
    document = value
    for part in reversed(key.split(".")):
        document = {part: document}
    return json.dumps(document)


def _knows(key: str, answer: dict) -> bool:
    name = SLABS if key.startswith(f"{SLABS}.") else key
    return answer["code"] is None or any(name in line for line in answer["said"])


def _typed(text: str):
    words = text.split()
    if words and all(re.fullmatch(r"-?\d+", word) for word in words):
        return int(words[0]) if len(words) == 1 else [int(word) for word in words]
    return {"true": True, "false": False}.get(text.strip(), text.strip())


def _same(asked, got) -> bool:
    if isinstance(asked, bool) and isinstance(got, int):
        return int(asked) == int(got)
    if isinstance(asked, list):
        return [str(x) for x in asked] == [str(x) for x in (got if isinstance(got, list) else str(got).split())]
    if isinstance(asked, dict):
        lists = {
            path: entry.get("rdma_dev_addr_list", []) if isinstance(entry, dict) else entry
            for path, entry in asked.items()
        }
        return {path: list(addresses) for path, addresses in lists.items() if addresses} == got
    return str(asked) == str(got)


def _without_comments(text: str) -> str:
    return re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', lambda m: m[1] or " ", text, flags=re.DOTALL)


def _leaves(config, prefix=""):
    """(dotted key, value) of each leaf; nothing for text that is not JSON with comments."""
    if isinstance(config, (str, bytes)):
        try:
            config = json.loads(
                _without_comments(config if isinstance(config, str) else config.decode("utf-8", "surrogateescape"))
            )
        except (ValueError, RecursionError):
            return
    if not isinstance(config, dict):
        return
    for key, value in config.items():
        if isinstance(value, dict) and value and key != "mount_table":
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def main() -> int:
    if len(sys.argv) == 3 and sys.argv[1] == "--child":
        _child(**json.loads(Path(sys.argv[2]).read_text()))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="cufile.json to try, '-' for standard input, 'none' for no file")
    parser.add_argument("--lib", help="libcufile.so.0, an nvidia-cufile wheel, or a folder holding one")
    parser.add_argument("--root", help="folder laid out like / that stands for the machine (sys, proc, etc)")
    parser.add_argument("--gpu", action="append", metavar="BDF", help="PCI address of a pretend GPU; may repeat")
    parser.add_argument(
        "--no-nvidia-fs", dest="nvidia_fs", action="store_false", default=None, help="no nvidia-fs driver"
    )
    parser.add_argument("--real-paths", action="store_true", help="do not pretend that paths in the file exist")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="environment for the library")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=JSON", help="cuFileSetParameter* before open"
    )
    parser.add_argument(
        "--topology", action="store_true", help="add the library's PCIe topology export (1.17 and later)"
    )
    parser.add_argument("--timeout", type=float, default=60, help="seconds (60)")
    parser.add_argument("-v", "--verbose", action="store_true", help="keep DEBUG and TRACE log lines")
    options = parser.parse_args()
    try:
        config = {"none": lambda: None, "-": sys.stdin.buffer.read}.get(
            options.config, lambda: Path(options.config).read_bytes()
        )()
        answer = ask(
            config,
            lib=options.lib,
            root=options.root,
            gpus=options.gpu,
            nvidia_fs=options.nvidia_fs,
            assume_paths=not options.real_paths,
            topology=options.topology,
            env=dict(pair.split("=", 1) for pair in options.env),
            set_before={k: json.loads(v) for k, v in (pair.split("=", 1) for pair in options.set)},
            timeout=options.timeout,
            verbose=options.verbose,
        )
    except Unavailable as error:
        print(json.dumps({"available": False, "reason": str(error)}))
        return 3
    except (OSError, ValueError) as error:
        print(f"oracle: {error}", file=sys.stderr)
        return 2
    print(json.dumps(answer, indent=1))
    return 4 if "broken" in answer else 0 if answer["accepted"] and answer["opened"] else 1


if __name__ == "__main__":
    sys.exit(main())
