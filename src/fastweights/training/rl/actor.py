"""Who acts in environments, and who learns from it: one process in turns, or several at once."""

from copy import deepcopy
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from fastweights.core.errors import require
from fastweights.state import to
from fastweights.training.optimiser_step import set_learning_rate
from fastweights.training.rl.actor_critic_loss import first_moments, update
from fastweights.training.rl.actors import begin_acting, begin_learning, room_for, seed_of
from fastweights.training.rl.rollout_worker import Returns, Stage, Unroll
from fastweights.training.rl.worker_pool import Crew
from fastweights.training.session import Session


class Acting(Protocol):
    """Agents that act and learn, an update at a time."""

    returns: Returns
    """Since the last evaluation."""

    def learn(self) -> float:
        """An update; returns its loss."""

    def renew(self) -> None:
        """After an evaluation."""

    def carried(self) -> Any:
        """What a checkpoint holds beside weights."""

    def news(self) -> str:
        """What happened to those who act, a line each."""

    def close(self) -> None:
        """Ends what runs."""


class Synchronous:
    """Acting and learning take turns. Goes on to the same bits: environments are made anew from their seed, and the
    actions that were taken since are taken again."""

    def __init__(self, session: Session, model: nn.Module, optimiser: Any, carried: Any) -> None:
        self.session, self.model, self.optimiser = session, model, optimiser
        state, history = carried
        self._begin(state, history, session.place.step % session.settings.evaluate_every)

    @staticmethod
    def blank(session: Session) -> Any:
        """The agents' state, and room for the actions until the next evaluation."""
        settings, rows = session.settings, rows_of(session)
        steps = min(settings.evaluate_every, settings.steps) * settings.unroll
        return session.bare.initial_state(rows), session.task.actions.blank(rows, steps)  # type: ignore[operator]

    @property
    def returns(self) -> Returns:
        """Those of the stage."""
        return self.stage.returns

    def learn(self) -> float:
        """Acts for an unroll, and learns from it."""
        session, settings = self.session, self.session.settings
        unroll = self.stage.act(session.bare, settings.unroll)
        set_learning_rate(self.optimiser, settings.learning_rate_at(session.place.step))
        return update(session.fabric, self.model, self.optimiser, unroll, settings)

    def renew(self) -> None:
        """Environments begin anew."""
        self.close()
        state, history = self.blank(self.session)
        self._begin(state, history, 0)

    def carried(self) -> Any:
        """The agents' state, and the actions since the environments began."""
        return to(self.stage.state, "cpu"), self.stage.history

    def news(self) -> str:
        """None."""
        return ""

    def close(self) -> None:
        """Ends the environments."""
        self.stage.worlds.close()

    def _begin(self, state: Any, history: Tensor, updates: int) -> None:
        """Environments of this process and of this evaluation, so many updates after they began."""
        fabric, settings = self.session.fabric, self.session.settings
        began = self.session.place.step - updates
        worlds = self.session.task.worlds(len(history), seed_of(settings.seed, fabric.global_rank, began))
        taken, bootstrap = updates * settings.unroll, settings.bootstrap_time_limits
        self.stage = Stage(worlds, to(state, fabric.device), history, taken, fabric.device, bootstrap)


class Apart:
    """Processes that act in environments of their own; these are not saved, and begin anew where a run goes on."""

    def __init__(self, session: Session) -> None:
        self.session, self.returns = session, Returns()
        self.seats = list(range(session.settings.actors))
        self.seed = (session.settings.seed, session.fabric.global_rank, session.place.step)
        self.crew: Crew

    @staticmethod
    def blank(session: Session) -> Any:
        """Nothing."""
        return ()

    def renew(self) -> None:
        """Environments go on."""
        self.returns = Returns()

    def carried(self) -> Any:
        """Nothing."""
        return ()

    def news(self) -> str:
        """Who died."""
        told, self.crew.news = "\n".join(self.crew.news), []
        return told

    def close(self) -> None:
        """Ends the processes."""
        self.crew.close()


class Impala(Apart):
    """Actors that make unrolls all the time, and a learner that takes the oldest of them, `batch_size` an update.

    An actor begins its next unroll as soon as the learner has copied the last, with the newest weights at that time.
    Weights are in shared memory, in several copies: the learner writes one that no actor reads. Unrolls are there too,
    one for each actor. There is no lock that an actor could hold when it dies.

    Source: Espeholt et al. 2018 (IMPALA), Sec. 3.
    """

    COPIES = 3
    """Of the weights: the newest, the one before it, which actors may still read, and one to write."""

    def __init__(self, session: Session, model: nn.Module, optimiser: Any, carried: Any) -> None:
        super().__init__(session)
        self.model, self.optimiser, self.newest = model, optimiser, 0
        self.copies = [deepcopy(session.bare).cpu().share_memory() for _ in range(self.COPIES)]
        self.ready: list[list[Tensor]] = []
        rows = rows_of(session) // len(self.seats)
        self.rooms = [room_for(self.copies[0], session.task, rows, session.settings.unroll) for _ in self.seats]
        _, self.structure = tree_flatten(self.rooms[0])
        rooms = [tree_flatten(room)[0] for room in self.rooms]
        given = (session.task, self.copies, rooms, session.settings, self.seed)
        self.crew = Crew(len(self.seats), begin_acting, given)
        for seat in self.seats:
            self.crew.tell(seat, self.newest)

    def learn(self) -> float:
        """Learns from the oldest unrolls."""
        session = self.session
        number = session.settings.batch_size // session.fabric.world_size
        while len(self.ready) < number:
            self._take()
        unroll = self._unroll(number)
        set_learning_rate(self.optimiser, session.settings.learning_rate_at(session.place.step))
        loss = update(session.fabric, self.model, self.optimiser, unroll, session.settings)
        self._publish()
        return loss

    def _take(self) -> None:
        """Copies the unrolls of the first actor that is ready, one a row, and lets it act again."""
        seat, counted = self.crew.hear(self.seats)
        # The others come first next time, so that no actor waits for ever.
        self.seats.remove(seat)
        self.seats.append(seat)
        self.returns.add(*counted)
        leaves = [leaf.clone() for leaf in tree_flatten(self.rooms[seat])[0]]
        self.ready += [list(row) for row in zip(*(leaf.split(1) for leaf in leaves), strict=True)]
        self.crew.tell(seat, self.newest)

    def _publish(self) -> None:
        """Writes the weights into a copy that no actor was told to read; if there is none, at the next update."""
        read = {self.newest, *self.crew.told}
        for free in [copy for copy in range(len(self.copies)) if copy not in read][:1]:
            self.copies[free].load_state_dict(self.session.bare.state_dict())
            self.newest = free

    def _unroll(self, number: int) -> Unroll:
        """The oldest unrolls, on the device of the learner."""
        rows, self.ready = self.ready[:number], self.ready[number:]
        joined: Unroll = tree_unflatten([torch.cat(parts) for parts in zip(*rows, strict=True)], self.structure)
        return tree_map_only(Tensor, lambda leaf: leaf.to(self.session.fabric.device), joined)


class Hogwild(Apart):
    """Asynchronous advantage actor-critic: processes act, and change shared weights and moments without a lock.

    Each copies the weights, acts with the copy for an unroll, and goes down the gradient that it finds with it. An
    update is that of one process.

    Source: Mnih et al. 2016 (A3C), Algorithm S3, with shared moments, Sec. 4; Ba et al. 2016, Sec. 4.4.
    """

    def __init__(self, session: Session, model: nn.Module, optimiser: Any, carried: Any) -> None:
        super().__init__(session)
        require(session.fabric.device.type == "cpu", "device", "cpu with hogwild", session.fabric.device.type)
        session.bare.share_memory()
        state, squares = optimiser.optimizer.state, session.settings.squares
        moments = [_shared_moments(state, parameter, squares) for parameter in session.bare.parameters()]
        self.begun = session.place.step
        given = (session.task, session.bare, moments, session.settings, self.seed)
        self.crew = Crew(len(self.seats), begin_learning, given)
        self.busy: list[int] = []

    def learn(self) -> float:
        """Waits for an update; before an evaluation no other is begun."""
        settings, step = self.session.settings, self.session.place.step
        last = min((step // settings.evaluate_every + 1) * settings.evaluate_every, settings.steps)
        for seat in [seat for seat in self.seats if seat not in self.busy][: last - self.begun]:
            self.crew.tell(seat, self.begun)
            self.busy.append(seat)
            self.begun += 1
        seat, (loss, *counted) = self.crew.hear(self.busy)
        self.busy.remove(seat)
        self.returns.add(*counted)
        return float(loss)


WAYS: dict[str, Any] = {"synchronous": Synchronous, "impala": Impala, "hogwild": Hogwild}


def rows_of(session: Session) -> int:
    """Environments of this process."""
    return int(session.settings.rows // session.fabric.world_size)


def _shared_moments(state: Any, parameter: nn.Parameter, squares: float) -> dict[str, Tensor]:
    """RMSProp's, from the beginning or where it was."""
    if not state[parameter]:
        state[parameter] = first_moments(parameter, squares)
    return {name: moment.share_memory_() for name, moment in state[parameter].items()}
