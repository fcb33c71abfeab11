"""How far is this run? Queued, reading, analysing, ready; drawn by ``assets/job.js`` from ``/api/runs/<id>/progress``."""

from __future__ import annotations

from typing import Any

import dash_ag_grid as dag
from dash import dcc, html

from dashboard.components.attributes import aria, data
from dashboard.components.guard import guarded
from dashboard.components.query import text
from dashboard.components.states import no_run
from dashboard.reading import shared
from tracekit.wording import clean


def layout(run_id: str | None = None, again: str | None = None, **_: Any) -> Any:
    """The page of a run's job; with ``again`` it offers to read one that is ready once more, else it goes on to the results."""
    return guarded(lambda: draw(text(run_id), bool(text(again))), __name__)


def draw(run_id: str, again: bool = False) -> html.Div:
    """The name of the run, and the place that follows its job."""
    try:
        run = shared().library.run(run_id)
    except LookupError:
        run = None
    if run is None:
        return no_run(run_id)
    follow = html.Div(id="tk-job", className="tk-job card", **data(run=str(run.id), stay="yes" if again else "no"))
    return html.Div([html.Div(html.H1(clean(run.name, 100)), className="title"), follow, _ahead()], className="page narrow")


def _ahead() -> html.Div:
    """Nothing to see: what draws figures and tables is loaded while files are read, and not when their results are there."""
    return html.Div([dcc.Graph(figure={}, config={"staticPlot": True}), dag.AgGrid(rowData=[], columnDefs=[])], className="ahead", **aria(hidden="true"))
