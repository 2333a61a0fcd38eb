"""Products with stored weights beside what memory and the CPU's dot products give, from build/.../kernels_bench."""
import turns
from programs import report_of
from report import Figure, Section

GEMV = {"q8_row": 0.90, "q8_2f": 0.90, "q4_tiled": 0.85, "q4_block": 0.85, "q4tp": 0.80, "f16": 0.90, "bf16": 0.90,
        "vbit_ro": 0.50, "q1": 0.60, "q1s": 0.60, "q1t": 0.50, "smoe_q4": 0.85, "smoe_q2": 0.75}
GEMM = {32: 0.60, 512: 0.68}
GEMM_DTYPES = ("q4tp", "q4_tiled", "q4_block", "smoe_q4")


def bench(setting, pattern):
    """{benchmark: its report} and the context, of one run."""
    seconds = 0.02 if setting.quick else 0.2
    report = report_of([setting.kernels_bench, f"--benchmark_filter={pattern}", f"--benchmark_min_time={seconds}",
                        "--benchmark_format=json"], {"MOEWE_BENCH_THREADS": str(setting.threads)})
    return {run["name"].removesuffix("/manual_time"): run for run in report["benchmarks"]}, report["context"]


def gemv_section(setting, runs):
    rows = []
    for dtype, target in GEMV.items():
        of = [run[0].get(f"BM_Decode/{dtype}/int8", {}) for run in runs]
        rows.append([dtype, turns.spread([run["bytes_per_second"] / 1e9 if run else None for run in of], 1),
                     turns.spread([run.get("scan", 0.0) / 1e9 for run in of], 1),
                     Figure(turns.median([run.get("share") for run in of]), target)])
    return Section(f"GEMV: one token, {setting.threads} threads", ["dtype", "GB/s", "scan, GB/s", "share of the scan"],
                   rows, ["Experts of 768 x 2048, 320 MB of them, eight at a time, all in turn: no cache holds them. "
                          "The scan reads the same number of bytes of the same matrices, in turn with the products.",
                          "As stored: no dtype is laid out anew when it is loaded. Activations are int8; f32 with f16 "
                          "and bf16."], [run[0] for run in runs])


def gemm_section(setting, runs):
    rows = []
    for n, target in GEMM.items():
        for dtype in GEMM_DTYPES:
            of = [run[0].get(f"BM_Gemm/{dtype}/{n}", {}) for run in runs]
            rows.append([n, dtype, turns.spread([run.get("GMAC/s") for run in of]),
                         turns.spread([run.get("peak") for run in of]),
                         Figure(turns.median([run.get("share") for run in of]), target)])
    return Section(f"GEMM: 4-bit codes by int8, {setting.threads} threads",
                   ["tokens", "dtype", "GMAC/s", "peak, GMAC/s", "share of the peak"], rows,
                   [f"A matrix of 4096 x 4096. The peak is of `{runs[0][1]['dots']}` alone, in registers, in turn with "
                    "the product, whose time includes quantizing the activations."], [run[0] for run in runs])


def measure(setting):
    runs = turns.take(setting.turns, {
        "gemv": lambda: bench(setting, f"^BM_Decode/({'|'.join(GEMV)})/int8"),
        "gemm": lambda: bench(setting, f"^BM_Gemm/({'|'.join(GEMM_DTYPES)})/")})
    return [gemv_section(setting, runs["gemv"]), gemm_section(setting, runs["gemm"])]
