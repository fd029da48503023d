"""Modes of acting and learning: in one process in turn, or in several processes at once."""

from copy import deepcopy
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from fastweights.core.errors import require
from fastweights.state import to
from fastweights.training.optimiser_step import set_learning_rate
from fastweights.training.rl.actor_critic_loss import first_moments, update
from fastweights.training.rl.actors import buffer_for, make_actor, make_learner, seed_of
from fastweights.training.rl.rollout_worker import EpisodeReturns, Rollout, RolloutWorker
from fastweights.training.rl.worker_pool import WorkerPool
from fastweights.training.session import Session


class ActorMode(Protocol):
    """Agents that act and learn, one training step at a time."""

    returns: EpisodeReturns
    """Returns since the last evaluation."""

    def learn(self) -> float:
        """Takes a training step; returns its loss."""

    def reset(self) -> None:
        """Resets after an evaluation."""

    def checkpoint_state(self) -> Any:
        """The contents of a checkpoint in addition to the weights."""

    def events(self) -> str:
        """Events of the actors, one line each."""

    def close(self) -> None:
        """Ends environments and processes."""


class Synchronous:
    """Acts and learns in turn. Resuming is bit-identical: environments are created again from their seed, and the
    actions since then are replayed."""

    def __init__(self, session: Session, model: nn.Module, optimiser: Any, carried: Any) -> None:
        self.session, self.model, self.optimiser = session, model, optimiser
        state, history = carried
        self._begin(state, history, session.progress.step % session.settings.evaluate_every)

    @staticmethod
    def initial_checkpoint_state(session: Session) -> Any:
        """The initial state of the agents, and a buffer for the actions until the next evaluation."""
        settings, rows = session.settings, rows_of(session)
        steps = min(settings.evaluate_every, settings.steps) * settings.rollout_length
        return session.bare.initial_state(rows), session.task.actions.blank(rows, steps)  # type: ignore[operator]

    @property
    def returns(self) -> EpisodeReturns:
        """Returns of the rollout worker."""
        return self.worker.returns

    def learn(self) -> float:
        """Acts for a rollout, and takes a training step on it."""
        session, settings = self.session, self.session.settings
        rollout = self.worker.act(session.bare, settings.rollout_length)
        set_learning_rate(self.optimiser, settings.learning_rate_at(session.progress.step))
        return update(session.fabric, self.model, self.optimiser, rollout, settings)

    def reset(self) -> None:
        """Creates new environments."""
        self.close()
        state, history = self.initial_checkpoint_state(self.session)
        self._begin(state, history, 0)

    def checkpoint_state(self) -> Any:
        """The state of the agents, and the actions since the start of the environments."""
        return to(self.worker.state, "cpu"), self.worker.history

    def events(self) -> str:
        """Returns an empty text."""
        return ""

    def close(self) -> None:
        """Closes the environments."""
        self.worker.envs.close()

    def _begin(self, state: Any, history: Tensor, updates: int) -> None:
        """Creates the environments of this process, and replays the actions of `updates` training steps."""
        fabric, settings = self.session.fabric, self.session.settings
        began = self.session.progress.step - updates
        envs = self.session.task.make_envs(len(history), seed_of(settings.seed, fabric.global_rank, began))
        steps, bootstrap = updates * settings.rollout_length, settings.bootstrap_time_limits
        state, compiled = to(state, fabric.device), settings.compiles_steps
        self.worker = RolloutWorker(envs, state, history, steps, fabric.device, bootstrap, compiled)


class ActorProcesses:
    """Actor processes with their environments, which are not saved: a resumed run starts new episodes."""

    def __init__(self, session: Session) -> None:
        self.session, self.returns = session, EpisodeReturns()
        self.worker_ids = list(range(session.settings.num_actors))
        self.seed = (session.settings.seed, session.fabric.global_rank, session.progress.step)
        self.pool: WorkerPool

    @staticmethod
    def initial_checkpoint_state(session: Session) -> Any:
        """Returns an empty tuple."""
        return ()

    def reset(self) -> None:
        """Resets the returns. Environments continue."""
        self.returns = EpisodeReturns()

    def checkpoint_state(self) -> Any:
        """Returns an empty tuple."""
        return ()

    def events(self) -> str:
        """Names of the processes that died."""
        text, self.pool.events = "\n".join(self.pool.events), []
        return text

    def close(self) -> None:
        """Ends the processes."""
        self.pool.close()


class ImpalaActors(ActorProcesses):
    """Actors that make rollouts all the time, and a learner that takes the oldest of them, `batch_size` an update.

    An actor begins its next rollout as soon as the learner has copied the last, with the newest weights at that time.
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
        rows = rows_of(session) // len(self.worker_ids)
        self.buffers = [
            buffer_for(self.copies[0], session.task, rows, session.settings.rollout_length) for _ in self.worker_ids
        ]
        _, self.structure = tree_flatten(self.buffers[0])
        rooms = [tree_flatten(room)[0] for room in self.buffers]
        arguments = (session.task, self.copies, rooms, session.settings, self.seed)
        self.pool = WorkerPool(len(self.worker_ids), make_actor, arguments)
        for worker_id in self.worker_ids:
            self.pool.send(worker_id, self.newest)

    def learn(self) -> float:
        """Learns from the oldest rollouts."""
        session = self.session
        number = session.settings.batch_size // session.fabric.world_size
        while len(self.ready) < number:
            self._take()
        rollout = self._rollout(number)
        set_learning_rate(self.optimiser, session.settings.learning_rate_at(session.progress.step))
        loss = update(session.fabric, self.model, self.optimiser, rollout, session.settings)
        self._publish()
        return loss

    def _take(self) -> None:
        """Copies the rollouts of the first actor that is ready, one a row, and lets it act again."""
        worker_id, counted = self.pool.receive(self.worker_ids)
        # The others come first next time, so that no actor waits for ever.
        self.worker_ids.remove(worker_id)
        self.worker_ids.append(worker_id)
        self.returns.add(*counted)
        leaves = [leaf.clone() for leaf in tree_flatten(self.buffers[worker_id])[0]]
        self.ready += [list(row) for row in zip(*(leaf.split(1) for leaf in leaves), strict=True)]
        self.pool.send(worker_id, self.newest)

    def _publish(self) -> None:
        """Writes the weights into a copy that no actor reads; if there is none, at the next update."""
        read = {self.newest, *self.pool.messages}
        for free in [copy for copy in range(len(self.copies)) if copy not in read][:1]:
            self.copies[free].load_state_dict(self.session.bare.state_dict())
            self.newest = free

    def _rollout(self, number: int) -> Rollout:
        """The oldest rollouts, on the device of the learner."""
        rows, self.ready = self.ready[:number], self.ready[number:]
        joined: Rollout = tree_unflatten([torch.cat(parts) for parts in zip(*rows, strict=True)], self.structure)
        return tree_map_only(Tensor, lambda leaf: leaf.to(self.session.fabric.device), joined)


class HogwildActors(ActorProcesses):
    """Asynchronous advantage actor-critic: processes act, and update shared weights and moments without a lock.

    Each copies the weights, acts with the copy for a rollout, and applies its gradient to the shared weights. One
    process takes one training step.

    Source: Mnih et al. 2016 (A3C), Algorithm S3, with shared moments, Sec. 4; Ba et al. 2016, Sec. 4.4.
    """

    def __init__(self, session: Session, model: nn.Module, optimiser: Any, carried: Any) -> None:
        super().__init__(session)
        require(session.fabric.device.type == "cpu", "device", "cpu with hogwild", session.fabric.device.type)
        session.bare.share_memory()
        state, squares = optimiser.optimizer.state, session.settings.initial_square_avg
        moments = [_shared_moments(state, parameter, squares) for parameter in session.bare.parameters()]
        self.started = session.progress.step
        arguments = (session.task, session.bare, moments, session.settings, self.seed)
        self.pool = WorkerPool(len(self.worker_ids), make_learner, arguments)
        self.busy: list[int] = []

    def learn(self) -> float:
        """Waits for a training step; none is started before an evaluation."""
        settings, step = self.session.settings, self.session.progress.step
        last = min((step // settings.evaluate_every + 1) * settings.evaluate_every, settings.steps)
        for worker_id in [worker_id for worker_id in self.worker_ids if worker_id not in self.busy][
            : last - self.started
        ]:
            self.pool.send(worker_id, self.started)
            self.busy.append(worker_id)
            self.started += 1
        worker_id, (loss, *counted) = self.pool.receive(self.busy)
        self.busy.remove(worker_id)
        self.returns.add(*counted)
        return float(loss)


MODES: dict[str, Any] = {"synchronous": Synchronous, "impala": ImpalaActors, "hogwild": HogwildActors}


def rows_of(session: Session) -> int:
    """Environments of this process."""
    return int(session.settings.rows // session.fabric.world_size)


def _shared_moments(state: Any, parameter: nn.Parameter, squares: float) -> dict[str, Tensor]:
    """Moments of RMSProp in shared memory, initial or current."""
    if not state[parameter]:
        state[parameter] = first_moments(parameter, squares)
    return {name: moment.share_memory_() for name, moment in state[parameter].items()}
