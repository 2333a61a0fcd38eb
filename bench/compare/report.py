"""Figures beside their targets, as Markdown and as JSON."""
import dataclasses
import json


@dataclasses.dataclass
class Figure:
    """A number of a table. With a target it has to be at least that, or at most; none = not measured."""
    value: float | None
    target: float | None = None
    at_most: bool = False
    digits: int = 2
    unit: str = ""

    def met(self):
        if self.target is None:
            return None
        return self.value is not None and (self.value <= self.target if self.at_most else self.value >= self.target)

    def markdown(self):
        text = "-" if self.value is None else f"{self.value:.{self.digits}f}{self.unit}"
        if self.target is None:
            return text
        bound = f"{'<=' if self.at_most else '>='} {self.target:g}{self.unit}"
        return f"{text} ({bound})" if self.met() else f"**{text}** ({bound}: missed)"


@dataclasses.dataclass
class Section:
    """A table: `rows` of Figures and text under `columns`, notes below it, and what was measured for it."""
    title: str
    columns: list
    rows: list
    notes: list = dataclasses.field(default_factory=list)
    runs: object = None

    def figures(self):
        return [cell for row in self.rows for cell in row if isinstance(cell, Figure)]

    def markdown(self):
        def line(cells):
            return "| " + " | ".join(c.markdown() if isinstance(c, Figure) else str(c) for c in cells) + " |"

        lines = [f"### {self.title}", "", line(self.columns), line("---" for _ in self.columns)]
        lines += [line(row) for row in self.rows]
        if self.notes:
            lines += [""] + [f"- {note}" for note in self.notes]
        return "\n".join(lines)

    def data(self):
        def cell(c):
            return {"value": c.value, "target": c.target, "at_most": c.at_most, "met": c.met()} if isinstance(
                c, Figure) else c

        return {"title": self.title, "columns": self.columns, "rows": [[cell(c) for c in row] for row in self.rows],
                "notes": self.notes, "runs": self.runs}


def summary(sections):
    """(targets met, targets)."""
    decided = [figure.met() for section in sections for figure in section.figures() if figure.target is not None]
    return sum(decided), len(decided)


def markdown(heading, facts, sections):
    met, of = summary(sections)
    lines = [f"## {heading}", "",
             f"{met} of {of} figures reach their target, which stands beside each in brackets.", ""]
    lines += [f"- {name}: {text}" for name, text in facts.items()]
    return "\n".join(lines) + "\n\n" + "\n\n".join(section.markdown() for section in sections) + "\n"


def write(stem, heading, facts, sections):
    """STEM.md and STEM.json; gives the former's text."""
    text = markdown(heading, facts, sections)
    with open(stem + ".md", "w") as out:
        out.write(text)
    met, of = summary(sections)
    with open(stem + ".json", "w") as out:
        json.dump({"facts": facts, "targets": of, "met": met, "sections": [section.data() for section in sections]},
                  out, indent=1)
    return text
