"""What a second thread gains: prefill, and decode beside what a scan of memory gains."""
import turns
from programs import Moewe
from report import Figure, Section

PREFILL, DECODE = 1.85, 0.95


def measure(setting):
    prompt, depth = setting.lengths()[0]
    shape = setting.shape("qwen3-30b-a3b")
    file = shape.cmf(setting.quant)
    shape.drop_sources()
    programs = {f"{n} threads": Moewe(setting.moewe, file, n, setting.tokens()) for n in (1, 2)}
    runs = turns.take(setting.turns, {
        name: lambda program=program: program.run([(prompt, depth)]) for name, program in programs.items()})
    one, two = runs.values()

    def values(of, figure):
        return [run.get(figure) for run in of]

    def factor(figure):
        return turns.median_ratio(values(two, figure), values(one, figure))

    # Decode's factor over the scan's is the ratio of the shares, which are of the same moments.
    rows = [["prefill, tok/s", turns.spread(values(one, ("prefill", prompt))),
             turns.spread(values(two, ("prefill", prompt))), Figure(factor(("prefill", prompt)), PREFILL)],
            ["decode, tok/s", turns.spread(values(one, ("decode", depth))),
             turns.spread(values(two, ("decode", depth))), Figure(factor(("decode", depth)))],
            ["scan, GB/s", *(turns.spread([s / 1e9 for s in values(of, ("scan", depth)) if s], 1) for of in (one, two)),
             Figure(factor(("scan", depth)))],
            ["decode's factor over the scan's", "", "", Figure(factor(("share", depth)), DECODE)]]
    errors = sorted({run["error"] for run in one + two if "error" in run})
    return [Section(f"One thread and two, MoE, {setting.quant}", ["what", "1 thread", "2 threads", "factor"], rows,
                    [f"Prefill of {prompt} tokens, decode at {depth}.", *errors],
                    {name: [{" ".join(map(str, key)): value for key, value in run.items() if isinstance(key, tuple)}
                            for run in of] for name, of in runs.items()})]
