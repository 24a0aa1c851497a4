"""The implementation of `genenv report`: reading runs, figures, tables and the page."""
