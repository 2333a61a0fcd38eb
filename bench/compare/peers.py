"""The programs that moewe is compared with, installed by package managers into one folder.

llama.cpp's source comes inside the PyPI source package llama-cpp-python; gguf, which writes its files, is a PyPI
package too; cortiq is a crate. What is there already stays as it is: remove the folder for newer versions.
"""
import glob
import os
import re
import subprocess
import sys
import venv

JOBS = str(os.cpu_count())


class Missing(Exception):
    """A peer that could not be had, and why."""


class Peers:
    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.python = self._at("venv/bin/python")
        self.llama_bench = self._at("llama.cpp/bin/llama-bench")
        self.llama_quantize = self._at("llama.cpp/bin/llama-quantize")
        self.cortiq = self._at("cortiq/bin/cortiq")
        self.missing = {}  # name: why

    def install(self):
        os.makedirs(self.folder, exist_ok=True)
        for name, install in (("gguf", self._gguf), ("llama.cpp", self._llama_cpp), ("cortiq", self._cortiq)):
            try:
                install()
            except Missing as error:
                self.missing[name] = str(error)
                print(f"{name} is missing: {error}", file=sys.stderr)
        if "gguf" in self.missing:  # llama.cpp then has no models
            self.missing.setdefault("llama.cpp", self.missing["gguf"])
        return self

    def versions(self):
        found = {}
        if os.path.exists(self.llama_bench) and self._llama_source():
            found["llama.cpp"] = f"of llama-cpp-python {self._llama_version()}"
        if os.path.exists(self.cortiq):
            found["cortiq"] = subprocess.run([self.cortiq, "--version"], stdout=subprocess.PIPE, text=True,
                                             check=True).stdout.split()[-1]
        return found

    def _at(self, name):
        return os.path.join(self.folder, name)

    def _run(self, name, *command):
        """Runs a step of an installation, below everybody else's work; its output goes to NAME.log."""
        print(f"{name}: {' '.join(command)}", file=sys.stderr)
        log = self._at(name + ".log")
        try:
            with open(log, "w") as out:
                code = subprocess.run(["nice", "-n", "10", *command], cwd=self.folder, stdout=out,
                                      stderr=subprocess.STDOUT).returncode
        except OSError as error:
            raise Missing(str(error)) from error
        if code != 0:
            raise Missing(f"`{os.path.basename(command[0])} {command[1]}` failed, see {log}")

    def _gguf(self):
        if not os.path.exists(self.python):
            try:
                venv.create(self._at("venv"), with_pip=True)
            except (OSError, subprocess.CalledProcessError) as error:  # Debian has pip for it in python3-venv
                raise Missing(f"no Python environment: {error}") from error
        if not glob.glob(self._at("venv/lib/python3*/site-packages/gguf")):
            self._run("gguf", self.python, "-m", "pip", "install", "gguf")

    def _llama_source(self):
        return next(iter(glob.glob(self._at("llama_cpp_python-*.tar.gz"))), None)

    def _llama_version(self):
        return re.search(r"llama_cpp_python-(.*)\.tar\.gz", self._llama_source()).group(1)

    def _llama_cpp(self):
        if os.path.exists(self.llama_bench) and os.path.exists(self.llama_quantize):
            return
        if self._llama_source() is None:
            self._run("llama-source", self.python, "-m", "pip", "download", "--no-deps", "--no-binary",
                      "llama-cpp-python", "llama-cpp-python")
        self._run("llama-unpack", "tar", "xzf", self._llama_source())
        source = self._llama_source()[:-len(".tar.gz")]
        self._run("llama-configure", "cmake", "-S", source + "/vendor/llama.cpp", "-B", "llama.cpp", "-G", "Ninja",
                  "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
                  "-DLLAMA_BUILD_SERVER=OFF")
        self._run("llama-build", "cmake", "--build", "llama.cpp", "-j", JOBS, "--target", "llama-bench",
                  "llama-quantize")

    def _cortiq(self):
        if not os.path.exists(self.cortiq):
            self._run("cortiq", "cargo", "install", "cortiq-cli", "--locked", "--root", self._at("cortiq"), "-j",
                      JOBS)
