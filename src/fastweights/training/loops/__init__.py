"""One explicit loop a kind of experiment, each found by the type of its settings: they lie in a file of its name in
`settings`.

A loop is a module with `train(session)`, which leaves the best weights in the run folder, `finish(session)`, which
measures them, and `show(session, result, console)`, which tells what came out.
"""
