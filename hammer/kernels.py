# SPDX-License-Identifier: Apache-2.0
"""The compiled loops: libraries that are planted or broken, and sanitizers on odd sizes, threads and processes."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from count import Count, SkippedError

TESTS = Path(__file__).parent.parent / "tests" / "native"
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -g"
LOAD = "from picirc.native import library; print('loaded' if library() else 'none')"
# Runs when a planted library is loaded.
PLANTED = (
    '#include <stdio.h>\n__attribute__((constructor)) static void run(void) { puts("planted"); fflush(stdout); }\n'
)
# Odd sizes, some threads, and the same again in a forked process.
CIRCUITS = """
import os, random, sys, torch, picirc as pc
from picirc.native import kernels_for

assert kernels_for(torch.empty(1)) is not None, "the compiled loops are not in use"
source = random.Random(int(sys.argv[1]))

def some(count):
    for _ in range(count):
        families = [pc.Bernoulli(), pc.Categorical(source.randrange(2, 20)), pc.Gaussian()]
        structure = source.choice([pc.chain(3), pc.random_regions(5, seed=source.randrange(9), repetitions=2)])
        columns = [source.choice(families) for _ in range(structure.n_variables)]
        qpc = pc.HCLT(structure, columns, states=source.choice([1, 2, 3, 7, 16, 33]))()
        x = qpc.sample((source.choice([1, 2, 3, 15, 16, 17, 63, 64, 65, 129, 500]),))
        qpc.log_prob(x).sum().backward()
        x[:, 0] = torch.nan
        qpc.mpe(given=x)
        qpc.marginals(x)
        print("done", flush=True)

for threads in (1, 2, 4):
    torch.set_num_threads(threads)
    some(int(sys.argv[2]))
torch.set_num_threads(1)
child = os.fork()
some(int(sys.argv[2]))
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def planted_libraries(seed: int, scale: float) -> Count:
    """A cache that others can write to, and files that are not what was compiled: never loaded, never a crash."""
    source, count = random.Random(seed), Count()
    with TemporaryDirectory() as name:
        cache = Path(name)
        compiler, planted = _compiler(), cache / "planted.so"
        (cache / "planted.c").write_text(PLANTED)
        subprocess.run([compiler, "-shared", "-fPIC", cache / "planted.c", "-o", planted], check=True)
        expected = _load(cache)
        if expected != (0, "loaded"):
            raise SkippedError(f"the loops cannot be compiled here: {expected}")
        (place,) = (cache / "picirc" / "kernels").iterdir()
        whole = place.read_bytes()
        for number in range(int(12 * scale) or 1):
            content = _broken(whole, planted.read_bytes(), source)
            place.write_bytes(content)
            with count.attempt(f"broken library {number}"):
                count.check(_load(cache) == (0, "loaded"), f"{len(content)} bytes: {_load(cache)}")
        place.write_bytes(planted.read_bytes())
        for mode in (0o777, 0o720, 0o702):
            place.parent.chmod(mode)
            with count.attempt(f"mode {mode:o}"):
                count.check(_load(cache) == (0, "none"), f"loaded from a folder of mode {mode:o}")
    return count


def sanitized_tests(seed: int, scale: float) -> Count:
    """The tests of the kernels, whose sizes are odd on purpose."""
    with TemporaryDirectory() as name:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(TESTS / "test_kernels.py")]
        done = _sanitized(Path(name), command)
    passed, failed = (sum(map(int, re.findall(rf"(\d+) {word}", done.stdout))) for word in ("passed", "failed"))
    count = Count(passed + failed)
    count.check(done.returncode == 0 and passed > 0, (done.stdout + done.stderr)[-1500:])
    return count


def sanitized_circuits(seed: int, scale: float) -> Count:
    """Whole circuits with several threads, and after a fork."""
    with TemporaryDirectory() as name:
        command = [sys.executable, "-c", CIRCUITS, str(seed), str(int(30 * scale) or 1)]
        done = _sanitized(Path(name), command)
    count = Count(done.stdout.count("done"))
    count.check(done.returncode == 0, (done.stdout + done.stderr)[-1500:])
    return count


def _compiler() -> str:
    found = shutil.which("cc")
    if found is None:
        raise SkippedError("no C compiler (apt-get install gcc)")
    return found


def _broken(whole: bytes, planted: bytes, source: random.Random) -> bytes:
    changed = bytearray(whole)
    for _ in range(source.choice([1, 8, 64])):
        changed[source.randrange(len(changed))] ^= 1 << source.randrange(8)
    cut = whole[: source.randrange(len(whole))]
    return source.choice([bytes(changed), cut, bytes(len(whole)), planted, b""])


def _load(cache: Path) -> tuple[int, str]:
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "PICIRC_NATIVE": "1", "CC": "cc"}
    command = [sys.executable, "-c", LOAD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip()


def _sanitized(cache: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a Python program whose kernels are compiled with sanitizers."""
    compiler = _compiler()
    found = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    runtime = found.stdout.strip()
    if not os.path.isabs(runtime):
        raise SkippedError("no address sanitizer (apt-get install gcc, or libasan of its version)")
    environment = os.environ | {
        "CC": f"{compiler} {FLAGS}",
        "LD_PRELOAD": os.path.realpath(runtime),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "XDG_CACHE_HOME": str(cache),
        "PICIRC_NATIVE": "1",
        "OMP_NUM_THREADS": "2",
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
