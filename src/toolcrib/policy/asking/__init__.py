"""Asking, in parts: what is shown, how answers reach those who wait, what a wide answer covers, what a no says."""
