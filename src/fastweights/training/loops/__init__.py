"""Training loops, one per kind of experiment. A loop is selected by the type of its settings, which are in the file of
the same name in `settings`.

A loop is a module with `train(session)`, which saves the best weights in the run folder, `finish(session)`, which
measures them, and `show(session, result, console)`, which prints the results.
"""
