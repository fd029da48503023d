"""ProcGen: one agent for four games that need a memory."""

from fastweights.recipes.irie2022._procgen import SR_IS_BETTER, one_for_all

EXPERIMENT = one_for_all(
    "ProcGen, memory: one agent for four games",
    "Appendix C.1, Table 5",
    memory=True,
    published={"delta-net": ((51.8, 2.6), (38.0, 4.1)), "sr-delta-net": ((59.0, 2.1), (38.5, 3.2))},
    claims=(SR_IS_BETTER,),
)
