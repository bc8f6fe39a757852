"""Runs as web pages: `page` writes one run as a file, `board` serves all runs below a folder.

`facts` collects what is known about a run, `worst_samples` finds the samples that a net predicts worst, and `static`
contains the scripts and styles, with uPlot, which draws the charts.
"""
