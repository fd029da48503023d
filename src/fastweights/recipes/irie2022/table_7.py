"""ProcGen: one agent for four games that ask for a memory, by game."""

from fastweights.recipes.irie2022._procgen import SR_IS_BETTER, one_for_all

EXPERIMENT = one_for_all(
    "ProcGen, memory: one agent for four games, by game",
    "Appendix C.2, Table 7",
    memory=True,
    published={"delta-net": (38.0, 4.1), "sr-delta-net": (38.5, 3.2)},
    claims=(SR_IS_BETTER,),
    by_game={"delta-net": (6.4, 0.8, 3.3, 29.2), "sr-delta-net": (6.2, 1.1, 3.3, 29.4)},
)
