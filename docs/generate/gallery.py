"""The gallery: a page for every embedding, and an overview with a small picture of each.

Nothing on these pages is fetched from elsewhere, and nothing needs a script.
"""

from __future__ import annotations

from docs.generate.formula import formula
from docs.generate.markdown import block, plain, table
from docs.generate.pictures import AT, SIZES, picture, thumbnail
from docs.generate.schema_words import allowed
from docs.generate.standings import standings
from fope_lab.cli.render.embeddings import as_yaml, in_words
from fope_lab.embeddings import embedding_names, parse_embedding
from fope_lab.embeddings.base import Shape
from fope_lab.embeddings.spec import Part, example, named, parts_of

FOLDER = "gallery"


def overview(_: str) -> str:
    """A card for every embedding."""
    return f'<div class="cards">\n{"".join(map(_card, embedding_names()))}</div>\n\n{AT}'


def _card(name: str) -> str:
    small = thumbnail(name) or '<p class="nothing">does nothing by position</p>'
    paper = named(name).source.partition(",")[0]
    return (
        f'<a class="card" href="{name}/"><strong>{name}</strong>'
        f"<small>{paper}</small>{small.replace(chr(10), ' ')}</a>\n"
    )


def pages() -> dict[str, str]:
    """The page of each embedding, by its path within the site."""
    return {f"{FOLDER}/{name}.md": page(name) for name in embedding_names()}


def page(name: str) -> str:
    """The page of a preset: paper, formula, picture, options and results."""
    preset, drawn = named(name), picture(name)
    made_of = parts_of(preset.composition)
    parts = [
        f"# {name}",
        plain(f"Source: {preset.source}."),
        f"Composition: `{in_words(preset.composition)}`.",
        _learned(name),
        *(_part(part) for part in made_of),
        "## Picture",
        _figure(drawn) if drawn else "Nothing depends on the position, so nothing is drawn.",
        "## In a sweep file",
        block(f"embedding: {as_yaml(example(name))}", "yaml"),
        *(_options(part) for part in made_of if part.options),
        "## In the results",
        standings(name),
    ]
    return "\n\n".join(parts) + "\n"


def _part(part: Part) -> str:
    heading = f"## {'Transform' if hasattr(part.kind, 'apply') else 'Mechanism'}: {part.kind.name}"
    svg = formula(part.kind.name)
    math = [f'<div class="formula">{svg}</div>'] if svg else []
    about = plain(" ".join((part.kind.__doc__ or "").split()))
    return "\n\n".join([heading, *math, about, plain(f"Source: {part.kind.source}.")])


def _figure(svg: str) -> str:
    return f'<div class="figure">{svg.replace(chr(10), " ")}</div>\n\n{AT}'


def _options(part: Part) -> str:
    rows = [
        (
            f"`{name}`",
            "list of transforms" if name == "transforms" else allowed(option.json_schema()),
            "required" if option.required else f"`{as_yaml(option.default)}`",
            plain(option.doc),
        )
        for name, option in part.options.items()
    ]
    header = ("option", "allowed", "default", "meaning")
    return f"### Options of {part.kind.name}\n\n{table(header, rows)}"


def _learned(name: str) -> str:
    definition = parse_embedding(example(name))
    shape = Shape(**SIZES, num_kv_heads=SIZES["num_heads"])
    learned = definition.learned_parameters(shape, num_layers=1)
    if not learned:
        return "It learns nothing."
    where = "in each layer" if definition.per_layer else "that all layers share"
    return f"It learns {learned:,} numbers {where}, at the size of the picture."
