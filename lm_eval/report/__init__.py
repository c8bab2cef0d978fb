"""The report: one HTML file with the scores, plots and samples of stored runs."""
