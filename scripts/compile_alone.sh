#!/usr/bin/env bash
# Does each file compile alone, as a plain `cmake --preset release` compiles it? Builds that compile eight files as one
# (cmake/MoeweUnity.cmake) would not notice an include that is missing. No code is generated, only errors and warnings.
#
#   scripts/compile_alone.sh changed   what changed in the last day, the latest first, then who includes a header
#                                      that did; for at most MOEWE_ALONE_SECONDS (300)
#   scripts/compile_alone.sh all       every file
#
# Ends with "N passed, N failed, N skipped"; skipped are files that the time did not suffice for.
set -uo pipefail
cd "$(dirname "$0")/.."
# A tree of its own, only configured, for the commands that files are compiled with.
tree=build/alone
mkdir -p "$tree"
cmake --preset release -B "$tree" -DMOEWE_UNITY=0 > "$tree/configure.log" 2>&1 || { cat "$tree/configure.log"; exit 1; }
exec python3 - "${1:-changed}" "$tree" "${MOEWE_ALONE_SECONDS:-300}" << 'END'
import concurrent.futures, json, os, re, shlex, subprocess, sys, time

scope, tree, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
root = os.getcwd() + "/"
commands = {e["file"].removeprefix(root): e["command"] for e in json.load(open(tree + "/compile_commands.json"))}


def git(*arguments):
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.split()


if scope == "all":
    files, seconds = list(commands), 86400
else:
    changed = list(dict.fromkeys(git("log", "--since=1 day ago", "--format=", "--name-only", "--", "*.cc", "*.h")))
    changed += [f for f in git("diff", "--name-only", "HEAD") if f not in changed]
    headers = {f.removeprefix("src/").removeprefix("include/").removeprefix("tests/") for f in changed if f.endswith(".h")}
    includes = {f: re.findall(r'#include [<"]([^>"]+)[>"]', open(f).read()) for f in commands}
    files = [f for f in changed if f in commands]
    files += [f for f in commands if f not in changed and headers & set(includes[f])]

end = time.monotonic() + seconds


def check(file):
    if time.monotonic() > end:
        return None
    words = shlex.split(commands[file])
    at = words.index("-o")
    del words[at : at + 2]
    return subprocess.run([*words, "-fsyntax-only"], cwd=tree, capture_output=True, text=True)


passed, failed = 0, 0
with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
    for file, result in zip(files, pool.map(check, files)):
        if result is None:
            continue
        passed, failed = passed + (result.returncode == 0), failed + (result.returncode != 0)
        if result.returncode:
            print(f"{file} does not compile alone:\n{result.stderr}")
skipped = len(files) - passed - failed
if skipped:
    print(f"no time for {skipped} of {len(files)} files")
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed != 0)
END
