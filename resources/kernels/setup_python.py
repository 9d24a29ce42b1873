# Run once in a Python kernel before anything else: the forms of results that notebooks do not know by themselves.
def _fumehood_setup():
    import json
    import os
    import sys

    import IPython
    from IPython.core.formatters import BaseFormatter, JSONFormatter
    from traitlets import ObjectName, Unicode

    class Data(BaseFormatter):
        """A table as its columns."""

        format_type = Unicode("e2b/data")
        print_method = ObjectName("_repr_e2b_data_")
        _return_type = (dict, str)

        def __call__(self, value):
            # A table can only be there if its library is: nothing is imported for what is none.
            pandas = sys.modules.get("pandas")
            if pandas is None or not isinstance(value, getattr(pandas, "DataFrame", ())):
                return super().__call__(value)
            columns = value.to_dict(orient="list")
            dated = lambda cell: cell.isoformat() if isinstance(cell, pandas.Timestamp) else cell
            return {str(name): [dated(cell) for cell in cells] for name, cells in columns.items()}

    class Chart(BaseFormatter):
        """A figure as its numbers."""

        format_type = Unicode("e2b/chart")
        print_method = ObjectName("_repr_e2b_chart_")
        _return_type = (dict, str)

        def __call__(self, value):
            figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
            if figure is None or not isinstance(value, figure):
                return super().__call__(value)
            try:
                from e2b_charts import chart_figure_to_dict

                return chart_figure_to_dict(value)
            except Exception:
                return None

    class Json(JSONFormatter):
        """Lists and tables of plain values."""

        def __call__(self, value):
            if isinstance(value, (list, dict)):
                try:
                    return json.loads(json.dumps(value, allow_nan=False)), {"expanded": True}
                except (TypeError, ValueError, RecursionError):
                    pass
            return super().__call__(value)

    # It was kept from the kernel, not from the code.
    if sys.modules.get("debugpy", sys) is None:
        del sys.modules["debugpy"]
    before = []

    def environment(new):
        """Sets variables for one execution; None puts back what was there."""
        while before:
            name, value = before.pop()
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for name, value in (new or {}).items():
            before.append((name, os.environ.get(name)))
            os.environ[name] = value

    shell = IPython.get_ipython()
    shell._fumehood_environment = environment
    display = shell.display_formatter
    for name, form in [("e2b/data", Data), ("e2b/chart", Chart), ("application/json", Json)]:
        display.formatters[name] = form(parent=display)


_fumehood_setup()
del _fumehood_setup
