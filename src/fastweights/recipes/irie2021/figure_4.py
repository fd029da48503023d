"""Atari after 200 million steps: the RDN beside the LSTM."""

from fastweights.recipes.irie2021._atari import comparison, wins

WINS, LOSES = wins("recurrent-delta-net", "lstm"), wins("lstm", "recurrent-delta-net")
LOST = ("battle_zone", "gopher", "seaquest", "zaxxon")
"""Where the paper's LSTM comes out on top."""

CLAIMS = (*(WINS[game] for game in ("pong", "up_n_down", "kung_fu_master")), *(LOSES[game] for game in LOST))

EXPERIMENT = comparison(4, "lstm", 200, CLAIMS)
