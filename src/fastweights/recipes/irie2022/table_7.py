"""ProcGen: one agent for four games that need a memory, by game."""

from fastweights.recipes.irie2022._procgen import SR_IS_BETTER, one_for_all

EXPERIMENT = one_for_all(
    "ProcGen, memory: one agent for four games, by game",
    "Appendix C.2, Table 7",
    memory=True,
    published={"delta-net": ((51.8, 2.6), (38.0, 4.1)), "sr-delta-net": ((59.0, 2.1), (38.5, 3.2))},
    claims=(SR_IS_BETTER,),
    by_game={
        "delta-net": (
            *((7.1, 0.2), (6.4, 0.3)),
            *((1.0, 0.3), (0.8, 0.2)),
            *((5.3, 0.4), (3.3, 0.6)),
            *((32.3, 0.4), (29.2, 1.1)),
        ),
        "sr-delta-net": (
            *((7.1, 0.6), (6.2, 0.6)),
            *((1.5, 0.1), (1.1, 0.3)),
            *((5.9, 0.2), (3.3, 0.4)),
            *((34.5, 0.8), (29.4, 0.7)),
        ),
    },
)
