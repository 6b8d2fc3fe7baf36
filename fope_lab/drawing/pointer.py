"""Where the points of a drawing are, and what each says, for a page that shows values under the
pointer (fope_lab/report/render/report.js)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fope_lab.drawing.plot import Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def points_json(figure: Figure, curves: Iterable[Curve]) -> str:
    """The points of the curves of a panel that `draw_panel` drew, as JSON.

    That is a list of {"label", "points": [[x, y, text], …]}, with x and y from the upper left
    corner of the SVG in its own units, to a tenth. Points without a value or a text are left out.
    """
    [axes] = figure.axes
    height = float(figure.bbox.height)
    drawn = []
    for curve in curves:
        places = axes.transData.transform(list(zip(curve.x, curve.y, strict=True)))
        drawn.append(
            {
                "label": curve.label,
                "points": [
                    [round(float(x), 1), round(height - float(y), 1), text]
                    for (x, y), text in zip(places, curve.texts, strict=True)
                    if math.isfinite(x) and math.isfinite(y)
                ],
            }
        )
    return json.dumps(drawn, ensure_ascii=False, separators=(",", ":"))
