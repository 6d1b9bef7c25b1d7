"""Heat maps of ranks: the longer a rank takes, the darker its cell."""

from __future__ import annotations

from perftool.model.pictures import HeatMap
from perftool.reporters.html.heat import heat_chart


def test_equal_neighbours_are_one_stretch_of_a_shade() -> None:
    shares = ((0.0, 0.3, 0.3, 0.01), (0.5, 0.0, 0.0, 0.03))
    heat = HeatMap("cause", "By cause", ("0", "1", "2", "3"), ("kernels", "copies"), shares)

    chart = heat_chart(heat)

    assert [(layer.kind, layer.path) for layer in chart.layers] == [
        ("heat-0", "M3 50H4v50H3z"), ("heat-3", "M1 0H3v50H1z"), ("heat-4", "M0 50H1v50H0z")
    ]  # fmt: skip
    assert [(tick.at, tick.label) for tick in chart.y] == [(25.0, "kernels"), (75.0, "copies")]


def test_with_more_ranks_than_columns_the_largest_neighbour_is_drawn() -> None:
    shares = tuple(0.5 if rank == 2047 else 0.0 for rank in range(3000))

    chart = heat_chart(HeatMap("step", "By step", tuple(map(str, range(3000))), ("step 1",), (shares,)))

    assert chart.columns == 1000
    assert [layer.path for layer in chart.layers] == ["M682 0H683v100H682z"]
