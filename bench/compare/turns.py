"""Runs that take turns, so that a machine's better and worse minutes come to all of them; medians."""
import statistics
import sys


def take(turns, runs, drop_after=(0, None)):
    """Calls every function of {name: function} once a turn; each second turn backwards. Gives {name: [results]}.

    drop_after = (n, function): after n turns, function(results so far) names those that need no more.
    """
    results = {name: [] for name in runs}
    names = list(runs)
    for turn in range(turns):
        if drop_after[1] is not None and turn == drop_after[0]:
            dropped = drop_after[1](results)
            names = [name for name in names if name not in dropped]
        for name in names[::-1 if turn % 2 else 1]:
            print(f"turn {turn + 1} of {turns}: {name}", file=sys.stderr, flush=True)
            results[name].append(runs[name]())
    return results


def median(values):
    """Of those that were measured; none of none."""
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def median_ratio(above, below):
    """Of what was measured in the same turns."""
    return median([a / b for a, b in zip(above, below) if a is not None and b])


def spread(values, digits=0):
    """A median with the least and the most, as text."""
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
