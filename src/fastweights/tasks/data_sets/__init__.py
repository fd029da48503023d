"""Published data sets, one per file: their files, their licence and their source. `fastweights data` lists them."""
