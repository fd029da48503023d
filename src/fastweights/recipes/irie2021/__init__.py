"""Irie, Schlag, Csordas and Schmidhuber 2021: Going Beyond Linear Transformers with Recurrent FWPs."""
