"""What a table has to say about the machine and the programs."""
import datetime
import os
import platform
import re
import subprocess


def _said(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    except OSError:
        return ""


def processor():
    """Its name, the sizes of its caches and the instruction sets that matter."""
    cpu = {key.strip(): value.strip() for key, _, value in
           (line.partition(":") for line in _said("lscpu").splitlines())}
    flags = [flag for flag in ("avx2", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
             if flag in cpu.get("Flags", "").split()]
    kind = f"{cpu.get('Model name', platform.machine())} (family {cpu.get('CPU family', '?')}, model " \
           f"{cpu.get('Model', '?')}), {os.cpu_count()} CPUs, {cpu.get('Thread(s) per core', '?')} a core"
    return f"{kind}, L3 {cpu.get('L3 cache', '?')}; {', '.join(flags)}"


def memory():
    with open("/proc/meminfo") as file:
        kib = int(re.search(r"MemTotal:\s+(\d+)", file.read()).group(1))
    return f"{kib / (1 << 20):.1f} GiB"


def load():
    return f"{os.getloadavg()[0]:.1f}"


def moewe_version(moewe, root):
    """With the commit, and whether files differ from it."""
    commit = _said("git", "-C", root, "rev-parse", "--short", "HEAD").strip()
    changed = " with changes" if _said("git", "-C", root, "status", "--porcelain", "-uno").strip() else ""
    return f"{_said(moewe, '--version').split()[-1]} ({commit}{changed})"


def facts(setting, root):
    versions = {"moewe": moewe_version(setting.moewe, root)} | setting.peers.versions()
    about = {"Machine": f"{processor()}; {memory()}; Linux {platform.release()}",
             "Programs": ", ".join(f"{name} {version}" for name, version in versions.items()),
             "Measured": f"{datetime.date.today().isoformat()}, {setting.threads} threads, medians of {setting.turns} "
                         "turns in which the programs alternate"}
    for name, why in setting.peers.missing.items():
        about[f"Missing: {name}"] = why
    if setting.quick:
        about["Quick"] = "a tiny shape, for trying the script: these figures say nothing"
    return about
